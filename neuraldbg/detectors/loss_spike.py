"""A sudden jump of the loss, far outside its own noise."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg, mad
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import LossStats, RunFacts, StepRecord
from neuraldbg.settings import Settings
from neuraldbg.trace import skill_of

WINDOW = 11  # losses before
TIMES = 3.0  # the median before
DEVIATIONS = 10.0  # robust deviations: OLMo stops at 6, its losses are smoother than those of small batches
LAST, BEYOND = 4, 1.2  # of these losses the largest times this: tasks that take turns have losses that alternate
QUIET = 10  # steps after an event in which no second one is said
MOST = 20  # that are told; more are how this loss is


@dataclass(frozen=True)
class State:
    losses: tuple[float, ...] = ()
    skills: tuple[float, ...] = ()
    chances: tuple[float, ...] = ()
    quiet_until: int = -1
    told: int = 0


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    loss = record.loss
    if loss is None or not math.isfinite(loss):
        return state, []
    skill = skill_of(record.loss_stats)
    events: list[SemanticEvent] = []
    if len(state.losses) >= WINDOW and record.step > state.quiet_until and state.told < MOST:
        event = judge(state, record.step, loss, _against(skill, record.loss_stats, state.chances))
        if event is not None:
            events.append(event)
            state = replace(state, quiet_until=record.step + QUIET, told=state.told + 1)
    if record.step > state.quiet_until - QUIET // 2:
        state = replace(state, losses=(*state.losses, loss)[-WINDOW:])
        if skill is not None:
            state = replace(state, skills=(*state.skills, skill)[-WINDOW:])
        if record.loss_stats is not None and record.loss_stats.chance:
            state = replace(state, chances=(*state.chances, record.loss_stats.chance)[-WINDOW:])
    return state, events


def _against(skill: float | None, stats: LossStats | None, chances: tuple[float, ...]) -> float | None:
    """Loss / chance, by the usual batch's chance where this one's is lower: few targets may happen to be alike."""
    if skill is None or stats is None or not stats.chance or not chances:
        return skill
    return skill * min(1.0, stats.chance / statistics.median(chances))


def judge(state: State, step: int, loss: float, skill: float | None) -> SemanticEvent | None:
    before = statistics.median(state.losses)
    noise = max(mad(state.losses), 1e-3 * abs(before), 1e-12)
    z = (loss - before) / noise
    if z < DEVIATIONS or (before > 0 and loss < TIMES * before):
        return None
    if loss <= BEYOND * max(state.losses[-LAST:]):
        return None
    if before <= 0 and loss - before < TIMES * (max(state.losses) - min(state.losses)):
        return None
    usual = statistics.median(state.skills) if state.skills else None
    return observed(
        "loss_spike",
        step,
        confidence=min(1.0, 0.5 + z / 100),
        height=loss,
        before=before,
        z=z,
        decades=lg(loss) - lg(before) if before > 0 else None,
        over_chance=skill,
        before_over_chance=usual,
        recovered=None,
    )
