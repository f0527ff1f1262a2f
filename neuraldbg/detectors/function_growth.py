"""A function without weights (exp, a power) that makes large values far larger: it leaves the range sooner or later."""

from __future__ import annotations

import itertools

from neuraldbg.detectors._common import clean, lg, size
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import LayerStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

GAIN_LG = 1.0  # decades that the largest value grows by; activations in use shrink it or, squared, grow it by 0.6
STEEPER = 1.5  # times the largest value over the rms grows: a function that only scales keeps this ratio
CALLS = 2  # in one pass, of a function that is no module: one jump between layers may be joined inputs
BOUNDED = ("sigmoid", "tanh", "softmax")


def initial(settings: Settings) -> frozenset[str]:
    return frozenset()


def step(state: frozenset[str], record: StepRecord, facts: RunFacts) -> tuple[frozenset[str], list[SemanticEvent]]:
    """Once a module; only behind weights, since features of raw data (a spectrogram) grow what they are given."""
    if not (clean(record) or backward_alone(record)):
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
    events += [e for e in _called(record, facts) if e.layer_name not in state]
    return state | {e.layer_name or "" for e in events}, events


def backward_alone(record: StepRecord) -> bool:
    """Whether only the gradient is not finite: then the forward pass before it may tell why."""
    return record.sampled and record.first_bad is not None and record.first_bad[0] == "gradient"


def _called(record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
    """The same where the function is called on a layer's output: seen by what the next layer gets. The first one."""
    modules = [m for n in facts.forward_order if n in record.layers and (m := facts.module(n)) is not None]
    pairs = itertools.pairwise([m for m in modules if not m.has_children])
    steep = [
        (a, gain)
        for a, b in pairs
        if a.parameters
        and b.parameters
        and (gain := steep_join(record.layers[a.name], record.layers[b.name])) > GAIN_LG
    ]
    if len(steep) < CALLS or "residual" in facts.structure:
        return []
    (first, gain), *_ = steep
    high = size(record.layers[first.name]) * 10**gain
    return [observed("function_growth", record.step, first.name, gain_lg=gain, largest=high, kind="function")]


def steep_join(given: LayerStats, taken: LayerStats) -> float:
    """Decades from a layer's largest output to the next one's largest input, if the rms does not grow along; else 0."""
    if not taken.inputs_high or not taken.inputs_rms or not given.rms or not given.finite or not taken.inputs_finite:
        return 0.0
    gain = lg(taken.inputs_high) - lg(size(given))
    return gain if gain - (lg(taken.inputs_rms) - lg(given.rms)) > lg(STEEPER) else 0.0


def steep_gain(s: LayerStats) -> float:
    """Decades from the largest input to the largest output, if the rms does not grow along; else 0."""
    if not s.inputs_high or not s.inputs_rms or not s.rms or not s.finite or not s.inputs_finite:
        return 0.0
    gain = lg(size(s)) - lg(s.inputs_high)
    return gain if gain - (lg(s.rms) - lg(s.inputs_rms)) > lg(STEEPER) else 0.0
