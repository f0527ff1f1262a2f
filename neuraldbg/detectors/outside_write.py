"""Weights that change by more than their optimizer can move them: something else wrote to them. Nearly an exact fact.

How far one step can go is known for the common optimizers: adaptive ones divide by the gradient's own size, so their
step is bounded by the rate alone; plain SGD moves by the rate times gradients that were seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, lg, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import OptimizerFacts, ParameterStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

# rms of one step over the rate, at most. Adam: (1 - beta1) / sqrt(1 - beta2), here for a beta2 of up to 0.9999, reached
# where a gradient comes after a long silence. RMSprop: 1 / sqrt(1 - alpha) for an alpha of up to 0.999.
ADAM = ("Adam", "AdamW", "NAdam")
ADAM_STEPS, RMSPROP_STEPS, SIGN_STEPS = 100.0, 32.0, 1.0
TIMES = 3.0  # over that bound: gradients of micro-batches that were clipped, scaled or not sampled are within it
SHARE = 0.5  # of the weight matrices; one that is filled anew (a codebook's idle entries, a new head) is the user's own
ELEMENTS = 16  # smaller tensors say little
SEEN = 5  # steps of gradients before SGD's reach is known
QUIET = 30  # samples without one after which the next is news
MOST = 5  # times that it is told; more say nothing new


@dataclass(frozen=True)
class State:
    largest: tuple[tuple[str, float], ...] = ()
    seen: int = 0
    quiet: int = QUIET
    told: int = 0


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or facts.manual_optimizer or not facts.optimizers:
        return state, []
    largest = dict(state.largest)
    beyond: list[float] = []
    for _, p in weight_layers(facts):
        s = record.parameters.get(p.name)
        if s is None or p.numel < ELEMENTS or p.owner is None or p.owner >= len(facts.optimizers):
            continue
        if s.gradient is not None and math.isfinite(s.gradient):
            largest[p.name] = max(largest.get(p.name, 0.0), s.gradient)
        reach = _reach(facts.optimizers[p.owner], max(record.rates, default=0.0), largest.get(p.name, 0.0), s)
        if reach and s.update is not None and s.weight:
            beyond.append(s.update * s.weight / (reach * max(1, record.backwards)))
    state = replace(state, largest=tuple(largest.items()), seen=state.seen + 1)
    if state.seen <= SEEN or not beyond or sum(b > TIMES for b in beyond) < SHARE * len(beyond):
        return replace(state, quiet=state.quiet + 1), []
    fresh = state.quiet >= QUIET and state.told < MOST
    state = replace(state, quiet=0, told=state.told + fresh)
    if not fresh:
        return state, []
    share = sum(b > TIMES for b in beyond) / len(beyond)
    return state, [observed("outside_write", record.step, times_lg=lg(max(beyond)), share=share, layers=len(beyond))]


def _reach(optimizer: OptimizerFacts, rate: float, gradient: float, stats: ParameterStats) -> float | None:
    """The largest rms by which one step can move this parameter; None where the optimizer's bound is not known."""
    decay = rate * optimizer.weight_decay * (stats.weight or 0.0)
    kind, left = optimizer.kind, 1 - min(optimizer.momentum, 0.999)
    if kind in ADAM:
        return rate * max(1.0, ADAM_STEPS * left) + decay
    if kind == "RMSprop":
        return rate * RMSPROP_STEPS / left + decay
    if kind == "Lion":
        return rate * SIGN_STEPS + decay
    if kind == "SGD":
        return rate * gradient / left + decay / left
    return None
