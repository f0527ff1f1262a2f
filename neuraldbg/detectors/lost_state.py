"""A loss that starts low under an optimizer without a past, and jumps: weights were restored, their optimizer not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings
from neuraldbg.trace import skill_of

TRAINED = 0.5  # loss / chance before the first update; fresh weights give 1 and more
NEXT = 5  # steps after it
TIMES = 3.0  # the first loss, in the median of the next: batch noise makes 1.5 of it, moments in place 1.1


@dataclass(frozen=True)
class State:
    skills: tuple[float, ...] = ()
    first: int = 0
    done: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if state.done:
        return state, []
    skill = skill_of(record.loss_stats)
    if skill is None or not math.isfinite(skill):
        return state, []
    if not state.skills:
        state = replace(state, first=record.step)
    state = replace(state, skills=(*state.skills, skill))
    start, after = state.skills[0], state.skills[1:]
    if start >= TRAINED or not start > 0:
        return replace(state, done=True), []
    if len(after) < NEXT:
        return state, []
    level = median(after) or 0.0
    if level < TIMES * start or not any(o.fresh for o in facts.optimizers):
        return replace(state, done=True), []
    fresh = next(o for o in facts.optimizers if o.fresh)
    event = observed(
        "lost_state",
        state.first,
        before=start,
        after=level,
        peak=max(after),
        optimizer=fresh.kind,
        rate=max(fresh.rates, default=None),
    )
    return replace(state, done=True), [event]
