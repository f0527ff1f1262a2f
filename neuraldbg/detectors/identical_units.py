"""Layers whose units all start with the same weights: until something tells them apart, each layer is one unit."""

from __future__ import annotations

from neuraldbg.detectors._common import weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

LAYERS, SHARE = 2, 0.5  # of the weight layers; a single one, a gate or a fixed average, may start even


def initial(settings: Settings) -> bool:
    return False


def step(state: bool, record: StepRecord, facts: RunFacts) -> tuple[bool, list[SemanticEvent]]:
    """Only the first sampled step tells how the weights started; `state`: done."""
    if state or not record.sampled:
        return state, []
    layers = [m.name for m, _ in weight_layers(facts)]
    alike = [m.name for m, p in weight_layers(facts) if p.name in record.alike]
    if record.step > 1 or len(alike) < LAYERS or len(alike) < SHARE * len(layers):
        return True, []
    return True, [observed("identical_units", record.step, alike[0], share=len(alike) / len(layers), layers=len(alike))]
