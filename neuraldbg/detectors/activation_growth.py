"""Activations that leave their own early size by decades."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, lg, size
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

DECADES = 3.0  # over the layer's own first steps; healthy training changes a layer's size by under one decade
HEAD = 10  # samples that say how large it is at first
TIMES = 2  # samples in a row: one batch may be odd


@dataclass(frozen=True)
class Layer:
    head: tuple[float, ...] = ()
    hits: int = 0
    since: int = 0


@dataclass(frozen=True)
class State:
    layers: dict[str, Layer]
    told: bool = False


def initial(settings: Settings) -> State:
    return State({})


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or state.told:
        return state, []
    layers = dict(state.layers)
    for m in facts.modules:
        s = record.layers.get(m.name)
        if s is None or m.order is None or not math.isfinite(size(s)):
            continue  # minus infinity is a mask, not a size
        high = size(s)
        layer = layers.get(m.name, Layer())
        if len(layer.head) < HEAD:
            layers[m.name] = replace(layer, head=(*layer.head, high))
            continue
        usual = median(layer.head)
        grown = bool(usual) and lg(high) - lg(usual) > DECADES
        since = layer.since if layer.hits else record.step
        layers[m.name] = replace(layer, hits=layer.hits + 1 if grown else 0, since=since)
    grown_layers = [(m, layers[m.name]) for m in facts.modules if m.name in layers and layers[m.name].hits >= TIMES]
    if not grown_layers:
        return State(layers), []
    m, layer = min(grown_layers, key=lambda pair: (pair[1].since, pair[0].order or 0))
    growth = lg(size(record.layers[m.name])) - lg(median(layer.head))
    return State(layers, told=True), [observed("activation_growth", layer.since, m.name, growth_lg=growth)]
