"""A function without weights (exp, a power) that makes large values far larger: it leaves the range sooner or later."""

from __future__ import annotations

from neuraldbg.detectors._common import clean, lg, size
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import LayerStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

GAIN_LG = 1.0  # decades that the largest value grows by; activations in use shrink it or, squared, grow it by 0.6
STEEPER = 1.5  # times the largest value over the rms grows: a function that only scales keeps this ratio
BOUNDED = ("sigmoid", "tanh", "softmax")


def initial(settings: Settings) -> frozenset[str]:
    return frozenset()


def step(state: frozenset[str], record: StepRecord, facts: RunFacts) -> tuple[frozenset[str], list[SemanticEvent]]:
    """Once a module; only behind weights, since features of raw data (a spectrogram) grow what they are given."""
    if not clean(record):
        return state, []
    events: list[SemanticEvent] = []
    weighted = False
    for name in facts.forward_order:
        m, s = facts.module(name), record.layers.get(name)
        if m is None or s is None or m.has_children:
            continue
        if m.parameters or not weighted:
            weighted = weighted or bool(m.parameters)
            continue
        gain = 0.0 if m.norm_over or m.activation in BOUNDED or name in state else steep_gain(s)
        if gain > GAIN_LG:
            events.append(observed("function_growth", record.step, name, gain_lg=gain, largest=size(s), kind=m.kind))
    return state | {e.layer_name or "" for e in events}, events


def steep_gain(s: LayerStats) -> float:
    """Decades from the largest input to the largest output, if the rms does not grow along; else 0."""
    if not s.inputs_high or not s.inputs_rms or not s.rms or not s.finite or not s.inputs_finite:
        return 0.0
    gain = lg(size(s)) - lg(s.inputs_high)
    return gain if gain - (lg(s.rms) - lg(s.inputs_rms)) > lg(STEEPER) else 0.0
