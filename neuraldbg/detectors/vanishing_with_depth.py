"""Gradients that shrink from layer to layer on their way back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, lg, slope, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

RATIO_LG = -3.0  # first over last weight layer: AUTOTRAINER's own limit; healthy nets stay above -1.8
SLOPE = 0.3  # decades per layer: a sigmoid's largest derivative, 1/4, gives 0.6
LAYERS = 4  # weight layers; a slope over fewer is no trend
HITS, SAMPLES = 3, 5  # of the last samples: one with a small gradient at the top may hide it


@dataclass(frozen=True)
class State:
    hits: tuple[bool, ...] = ()
    since: int | None = None
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or state.told or not record.backwards:
        return state, []
    profile = [
        (m.name, lg(s.gradient))
        for m, p in weight_layers(facts)
        if (s := record.parameters.get(p.name)) is not None and s.gradient is not None and s.gradient > 0
    ]
    values = [v for _, v in profile]
    hit = len(values) >= LAYERS and values[0] - values[-1] < RATIO_LG and slope(values) > SLOPE
    since = (record.step if state.since is None else state.since) if hit else state.since
    state = replace(state, hits=(*state.hits, hit)[-SAMPLES:], since=since)
    if sum(state.hits) < HITS:
        return (replace(state, since=None) if not any(state.hits) else state), []
    event = observed(
        "vanishing_with_depth",
        state.since or 0,
        profile[0][0],
        slope=slope(values),
        first_last_lg=values[0] - values[-1],
        layers=len(values),
        bounded_layers=bounded_layers(facts),
    )
    return replace(state, told=True), [event]


def bounded_layers(facts: RunFacts) -> int:
    """How many hidden tanh and sigmoid activations there are."""
    return sum(m.activation in ("tanh", "sigmoid") and m.position != "output" for m in facts.modules)
