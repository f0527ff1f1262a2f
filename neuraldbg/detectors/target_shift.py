"""The targets of a regression change their scale from one batch to the next: another unit, another source."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

WINDOW = 10  # batches before, a window that moves along: targets that a model makes itself grow slowly
TIMES = 3.0  # their median rms; sampling alone moves the rms of a batch by a few tens of percent
SPREAD = 1.6  # the window's own largest over smallest, for the scale to be a scale
REGRESSIONS = ("mse", "smooth_l1", "huber")  # the rms of class probabilities moves with the classes of a batch
IN_A_ROW = 3  # batches; one odd batch is an outlier


@dataclass(frozen=True)
class State:
    window: tuple[float, ...] = ()
    since: int | None = None
    hits: int = 0
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    loss = record.loss_stats
    rms = loss.target_rms if loss is not None and loss.kind in REGRESSIONS else None
    if rms is None or state.told or record.first_bad is not None:
        return state, []
    if len(state.window) < WINDOW:
        return replace(state, window=(*state.window, rms)), []
    usual = statistics.median(state.window)
    steady = min(state.window) > 0 and max(state.window) < SPREAD * min(state.window)
    if not steady or usual / TIMES < rms < usual * TIMES:
        return replace(state, window=(*state.window[1:], rms), hits=0, since=None), []
    since = record.step if state.since is None else state.since
    state = replace(state, hits=state.hits + 1, since=since)
    if state.hits < IN_A_ROW:
        return state, []
    return replace(state, told=True), [observed("target_shift", since, ratio=rms / usual, before=usual, after=rms)]
