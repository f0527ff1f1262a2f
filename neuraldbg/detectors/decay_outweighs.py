"""Weight decay that is stronger than the gradient: what a step learns only makes up for what decay takes away."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import OptimizerFacts, ParameterFacts, RunFacts, StepRecord
from neuraldbg.settings import Settings

FORGETS = 1e-2  # of the weights a step: they remember a hundred steps at most; usual decay takes below a thousandth
INSIDE = ("Adam", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam")  # decay is added to the gradient they rescale
BESIDE = ("AdamW", "SGD", "SGDW", "Lion")  # decay takes rate x weight_decay of the weights at each step
TIMES = 10  # samples in a row: a gradient that is small for a moment is no balance


@dataclass(frozen=True)
class State:
    hits: int = 0
    since: int = 0
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if state.told or not clean(record) or not any(o.weight_decay > 0 for o in facts.optimizers):
        return state, []
    pulls = [pull for m, p in weight_layers(facts) if (pull := _pull(p, record, facts)) is not None]
    ratio = statistics.median(r for r, _ in pulls) if pulls else 0.0
    if ratio < 1:
        return replace(state, hits=0), []
    state = replace(state, hits=state.hits + 1, since=state.since if state.hits else record.step)
    if state.hits < TIMES:
        return state, []
    taken = [t for _, t in pulls if t is not None]
    event = observed(
        "decay_outweighs", state.since, ratio=ratio, taken=statistics.median(taken) if taken else None, inside=not taken
    )
    return replace(state, told=True), [event]


def _pull(p: ParameterFacts, record: StepRecord, facts: RunFacts) -> tuple[float, float | None] | None:
    """(decay over what the parameter gets besides, share of the weights that decay takes a step); None: not known.

    Inside an adaptive gradient the ratio is that of the two gradients, and a share of the weights does not follow.
    Beside it, decay is compared with the whole movement, which it exceeds only where the gradient undoes it.
    """
    s = record.parameters.get(p.name)
    if s is None or p.owner is None or p.owner >= len(facts.optimizers) or not s.weight:
        return None
    held: OptimizerFacts = facts.optimizers[p.owner]
    if held.weight_decay > 0 and held.kind in INSIDE and s.gradient and math.isfinite(s.gradient):
        return held.weight_decay * s.weight / s.gradient, None
    if held.kind in BESIDE and s.update and math.isfinite(s.update):
        taken = max(record.rates, default=0.0) * held.weight_decay
        return (taken / s.update if taken >= FORGETS else 0.0), taken
    return None
