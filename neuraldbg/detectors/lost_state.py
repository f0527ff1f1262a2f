"""A loss that starts low and jumps under an optimizer or schedule without a past: only the weights were restored."""

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
SKIPS = 2  # skipped steps at the very start: a scaler whose state was restored has found its scale
TIMES = 3.0  # the first loss, in the median of the next: batch noise makes 1.5 of it, moments in place 1.1


@dataclass(frozen=True)
class State:
    skills: tuple[float, ...] = ()
    first: int = 0
    done: bool = False
    skips: int = 0
    searching: bool = True


def initial(settings: Settings) -> State:
    return State()


def _skipped(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """A scaler looks for its scale although its optimizer has a past."""
    state = replace(state, skips=state.skips + 1, first=state.first if state.skips else record.step)
    known = next((o for o in facts.optimizers if o.fresh is False), None)
    if state.skips < SKIPS or known is None:
        return state, []
    event = observed("lost_state", state.first, lost="scaler", optimizer=known.kind, scale=record.loss_scale)
    return replace(state, done=True), [event]


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if state.done:
        return state, []
    if record.skipped and state.searching:
        return _skipped(state, record, facts)
    state = replace(state, searching=False)
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
    fresh = next((o for o in facts.optimizers if o.fresh), None)
    blamed = fresh or next((o for o in facts.optimizers if o.first_rate), None)
    if level < TIMES * start or blamed is None:
        return replace(state, done=True), []
    event = observed(
        "lost_state",
        state.first,
        before=start,
        after=level,
        peak=max(after),
        lost="state" if fresh else "schedule",
        optimizer=blamed.kind,
        rate=max(blamed.rates, default=None),
    )
    return replace(state, done=True), [event]
