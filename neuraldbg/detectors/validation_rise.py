"""The validation loss climbs back from its best while the training loss goes on falling."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

LAST = 3  # validations; one that is worse than the best is noise
FEWEST = 5  # validations; fewer have no best and no end
TIMES = 1.1  # the best, in the median of the last: the noise of a validation set of a hundred samples is half of that
FALLING = 0.95  # the training loss at the end over the one around the best validation
AROUND = 10  # steps before the best validation
POINTS = 2000  # losses kept; then every other one goes, but for the last


@dataclass(frozen=True)
class State:
    losses: list[tuple[int, float]]
    validations: list[tuple[int, float]]


def initial(settings: Settings) -> State:
    return State([], [])


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """Only collects, in place; without a validation loss nothing is ever said."""
    if record.loss is not None and math.isfinite(record.loss):
        state.losses.append((record.step, record.loss))
        if len(state.losses) > POINTS:
            state.losses[:-AROUND] = state.losses[:-AROUND:2]
    if record.validation is not None and math.isfinite(record.validation):
        state.validations.append((record.step, record.validation))
    return state, []


def finish(state: State, facts: RunFacts) -> list[SemanticEvent]:
    values = [v for _, v in state.validations]
    if len(values) < FEWEST or len(state.losses) < AROUND:
        return []
    best = min(values)
    at = state.validations[values.index(best)][0]
    last = statistics.median(values[-LAST:])
    if values.index(best) >= len(values) - LAST or best <= 0 or last < TIMES * best:
        return []
    before = [v for s, v in state.losses if s <= at][-AROUND:]
    then, now = statistics.median(before or [math.inf]), statistics.median(v for _, v in state.losses[-AROUND:])
    if not now < FALLING * then:
        return []
    return [observed("validation_rise", at, best=best, last=last, times=last / best, training=now)]
