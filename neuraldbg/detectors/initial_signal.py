"""How the signal's size changes with depth before any update: weights too small or large, a residual sum that grows."""

from __future__ import annotations

import itertools
import math
import statistics

from neuraldbg.detectors._common import in_order, lg, weight_layers
from neuraldbg.detectors.function_growth import steep_join
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

GAIN_LG = 0.9  # decades per layer; the worst single layer of healthy nets has 0.75
LAYERS = 3  # that do so: one alone may be a projection that is meant to
DEPTH_LG = 1.5  # decades from the first to the last hidden layer; healthy nets stay within 0.66
RECURRENT = 1e3  # times the input's size: a stable recurrent map stays near one
FORGETS = 0.4  # gain of a recurrent matrix, rms x sqrt(width); the usual start has 0.58, an orthogonal one 1
GROWS = 1.2  # times its input: a block that takes part in the growth
JOINED = 1.02  # times what the layer before gave: a sum with another branch; in a plain stack both are equal
JOINS = 3  # such sums in a forward pass; one or two are a skip around the whole, or joined inputs


def initial(settings: Settings) -> bool:
    return False


def step(state: bool, record: StepRecord, facts: RunFacts) -> tuple[bool, list[SemanticEvent]]:
    """Only the first sampled step is looked at, and only where training has not changed much; `state`: done."""
    if state or not record.sampled or not record.layers:
        return state, []
    if record.step > 1:
        return True, []
    events = [*_recurrent(record, facts), *_forgetting(record, facts)]
    layers = [
        (m.name, s) for m, _ in weight_layers(facts) if (s := record.layers.get(m.name)) is not None and not m.recurrent
    ]
    finite = [(n, s) for n, s in layers if s.finite and s.rms > 0]  # zero: a factor or branch that starts at zero
    gains = [(n, lg(s.rms) - lg(s.inputs_rms)) for n, s in finite if s.inputs_rms and s.inputs_finite]
    shrinking = in_a_row(gains)
    growing = [(n, g) for n, g in gains if g > GAIN_LG]
    depth = lg(finite[-2][1].rms) - lg(finite[0][1].rms) if len(finite) > 2 else 0.0
    if len(shrinking) >= LAYERS:
        median = statistics.median(g for _, g in gains)
        events.append(observed("small_weights", record.step, shrinking[0][0], gain_lg=median, depth_lg=depth))
    if len(growing) >= LAYERS:
        median = statistics.median(g for _, g in gains)
        events.append(observed("large_weights", record.step, growing[0][0], gain_lg=median, depth_lg=depth))
    if depth > DEPTH_LG and len(growing) < LAYERS:
        joins = joined(record, facts)
        blocks = [
            m.name
            for m in in_order(facts)
            if m.has_children
            and not m.container
            and m.name
            and (s := record.layers.get(m.name)) is not None
            and s.inputs_rms
            and s.rms > GROWS * s.inputs_rms
        ]
        events.append(
            observed(
                "signal_growth",
                record.step,
                (blocks or joins[:1] if len(joins) >= JOINS else blocks or [finite[0][0]])[0],
                depth_lg=depth,
                gain_lg=max((g for _, g in gains), default=0.0),
                has_norm="norm" in facts.structure,
                residual="residual" in facts.structure or len(joins) >= JOINS,
                weights_lg=sum(g for _, g in gains),
            )
        )
    return True, events


def joined(record: StepRecord, facts: RunFacts) -> list[str]:
    """Modules after which a larger signal goes on than they gave: something else was added to it."""
    ran = [n for n in facts.forward_order if n in record.layers]
    leaves = [n for n in ran if (m := facts.module(n)) is not None and not m.has_children]
    found = []
    for before, name in itertools.pairwise(leaves):
        given, taken = record.layers[before], record.layers[name]
        if steep_join(given, taken) > 0:
            continue  # a power or an exponential in between, no sum
        if taken.inputs_rms is not None and 0 < given.rms < taken.inputs_rms / JOINED < math.inf:
            found.append(before)
    return found


def in_a_row(gains: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The longest row of layers that shrink the signal; single ones between others are a transformer's projections."""
    rows = [list(row) for small, row in itertools.groupby(gains, key=lambda pair: pair[1] < -GAIN_LG) if small]
    return max(rows, key=len, default=[])


def _recurrent(record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
    return [
        observed("recurrent_growth", record.step, m.name, rms_lg=lg(s.rms), inputs_lg=lg(s.inputs_rms))
        for m in facts.modules
        if m.recurrent
        and (s := record.layers.get(m.name)) is not None
        and s.inputs_rms
        and s.inputs_finite
        and not s.rms <= RECURRENT * max(s.inputs_rms, 1e-3)
    ]


def _forgetting(record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
    """Plain recurrences only: the gates of an LSTM or GRU carry the state whatever the size of their weights."""
    plain = {m.name for m in facts.modules if m.recurrent and m.kind in ("RNN", "RNNCell") and m.name in record.layers}
    gains = [
        (p.module, p.rms * p.numel**0.25)  # a square matrix: its width is the root of its elements
        for p in facts.parameters
        if p.module in plain and "weight_hh" in p.name and p.rms
    ]
    return [
        observed("recurrent_decay", record.step, name, gain=gain)
        for name, gain in dict(reversed(gains)).items()
        if gain < FORGETS
    ]
