"""Weights that have hardly gone anywhere: all updates of the run together are a few percent of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from neuraldbg.detectors._common import clean, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

PATH = 0.08  # of the weights; the shortest path of a healthy run that began at chance is 0.17
SAMPLES = 20  # fewer do not stand for a run
ELEMENTS = 16  # the update of a smaller tensor jumps at random
POINTS = 1000  # cosines kept


@dataclass(frozen=True)
class State:
    total: float = 0.0
    count: int = 0
    first: int = 0
    last: int = 0
    cosines: tuple[float, ...] = ()


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record):
        return state, []
    ratios = [
        s.update
        for _, p in weight_layers(facts)
        if p.numel >= ELEMENTS and p.rms and (s := record.parameters.get(p.name)) is not None and s.update
    ]
    if not ratios:
        return state, []
    cosines = state.cosines
    if record.cosine is not None and len(cosines) < POINTS:
        cosines = (*cosines, record.cosine)
    first = record.step if state.count == 0 else state.first
    return State(state.total + statistics.median(ratios), state.count + 1, first, record.step, cosines), []


def finish(state: State, facts: RunFacts) -> list[SemanticEvent]:
    """A sum over samples stands for the steps between them too."""
    if state.count < SAMPLES:
        return []
    steps = state.last - state.first + 1
    path = state.total / state.count * steps
    if not 0 < path < PATH:
        return []
    cosine = statistics.median(state.cosines) if state.cosines else None
    return [observed("short_path", state.first, path=path, cosine=cosine, steps=steps)]
