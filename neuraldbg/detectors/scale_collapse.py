"""A learned scale on its way to zero: a log-likelihood passes zero, and its gradient grows as one over the scale."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

from neuraldbg.detectors._common import clean, lg, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

HEAD = 10  # samples that say how large the gradient is at first
GROWN = 100.0  # times that; a healthy log-likelihood whose scale becomes small has 50 at most
FALLEN = 1.5  # of a logarithm's mean since the start: the scale is less than a quarter
ONE_SIDED = -0.85  # mean / rms of the head: every sample gets a small scale


@dataclass(frozen=True)
class State:
    norms: tuple[float, ...] = ()
    starts: dict[str, float] = field(default_factory=dict)
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if state.told or not clean(record) or record.gradient_norm is None or record.loss_stats is not None:
        return state, []
    heads = {m.name: s for m, _ in weight_layers(facts) if m.position == "output" and (s := record.layers.get(m.name))}
    starts = {**{name: s.mean for name, s in heads.items()}, **state.starts}
    state = replace(state, starts=starts)
    if len(state.norms) < HEAD:
        return replace(state, norms=(*state.norms, record.gradient_norm)), []
    fallen = {
        name: s.mean
        for name, s in heads.items()
        if s.mean < starts[name] - FALLEN and s.rms > 0 and s.mean / s.rms < ONE_SIDED
    }
    usual = statistics.median(state.norms)
    if not fallen or (record.loss or 0.0) >= 0 or record.gradient_norm < GROWN * usual:
        return state, []
    layer = min(fallen, key=lambda name: fallen[name])
    event = observed(
        "scale_collapse",
        record.step,
        layer,
        mean=fallen[layer],
        start=starts[layer],
        growth_lg=lg(record.gradient_norm) - lg(usual),
    )
    return replace(state, told=True), [event]
