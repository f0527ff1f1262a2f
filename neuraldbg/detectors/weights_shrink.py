"""Weights that shrink by weight decay faster than the gradient can hold them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, lg, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

SHRUNK_LG = -0.5  # to a third of the start, median over the weight layers
TIMES = 5  # samples in a row


@dataclass(frozen=True)
class State:
    hits: int = 0
    since: int = 0
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    decay = max((o.weight_decay for o in facts.optimizers), default=0.0)
    if not clean(record) or state.told or decay <= 0:
        return state, []
    changes = [
        lg(s.weight) - lg(p.rms)
        for _, p in weight_layers(facts)
        if p.rms and (s := record.parameters.get(p.name)) is not None and s.weight
    ]
    if not changes or statistics.median(changes) > SHRUNK_LG:
        return replace(state, hits=0), []
    state = replace(state, hits=state.hits + 1, since=state.since if state.hits else record.step)
    if state.hits < TIMES:
        return state, []
    return replace(state, told=True), [
        observed("weights_shrink", state.since, decay_lg=statistics.median(changes), weight_decay=decay)
    ]
