"""The size of gradients against their own early level, and against the limits that the settings name."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg, mad, weight_layers
from neuraldbg.events import SemanticEvent, observed, recovered
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

HEAD = 10  # steps that are the head; its first three are left out of the level, for they may be settling
SETTLING = 3
GROWTH_LG = 2.0  # decades over the head: healthy runs reach 1.8
BEGINS_LG = 1.0  # where growth is dated from
IN_A_ROW = 3  # steps: a single jump is a batch
FLAT = 0.1  # deviation over level of a gradient that stays high: saturated
FLAT_LG = 1.0  # decades over the head that it stays at
FLAT_STEPS = 20  # in which it hardly moves


@dataclass(frozen=True)
class State:
    vanishing: float
    exploding: float
    head: tuple[float, ...] = ()
    recent: tuple[float, ...] = ()
    hits: int = 0
    since: int | None = None
    told: SemanticEvent | None = None
    flat_told: bool = False
    layers: frozenset[tuple[str, str]] = frozenset()


def initial(settings: Settings) -> State:
    return State(settings.threshold_vanishing, settings.threshold_exploding)


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if record.first_bad is not None or record.skipped or not record.backwards:
        return state, []
    state, events = _limits(state, record, facts) if record.parameters else (state, [])
    g = record.gradient_norm
    if g is None or not math.isfinite(g) or g <= 0:
        return state, events
    if len(state.head) < HEAD:
        return replace(state, head=(*state.head, g)), events
    usual = median(state.head[SETTLING:]) or median(state.head) or g
    grown = lg(g) - lg(usual)
    recent = (*state.recent, g)[-FLAT_STEPS:]
    since = (record.step if state.since is None else state.since) if grown > BEGINS_LG else None
    state = replace(state, recent=recent, since=since, hits=state.hits + 1 if grown > GROWTH_LG else 0)
    if state.told is None and state.hits >= IN_A_ROW:
        event = observed(
            "exploding_gradient", since or record.step, rms=g, baseline=usual, growth_lg=grown, cosine=record.cosine
        )
        state = replace(state, told=event)
        events.append(event)
    elif state.told is not None and grown < BEGINS_LG / 2:
        events.append(recovered(state.told, record.step))
        state = replace(state, told=None)
    level = median(recent) or g
    if (
        not state.flat_told
        and len(recent) == FLAT_STEPS
        and lg(level) - lg(usual) > FLAT_LG
        and mad(recent) < FLAT * level
    ):
        events.append(observed("saturated_gradient", record.step - FLAT_STEPS + 1, rms=level, baseline=usual))
        state = replace(state, flat_told=True)
    return state, events


def _limits(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """Layers beyond the absolute limits: known from step 0, an observation only."""
    events: list[SemanticEvent] = []
    for m, p in weight_layers(facts):
        s = record.parameters.get(p.name)
        if s is None or not s.gradient or not math.isfinite(s.gradient):
            continue
        symptom = None
        if s.gradient < state.vanishing:
            symptom = "vanishing_gradient"
        elif s.gradient > state.exploding:
            symptom = "exploding_gradient"
        if symptom and (symptom, m.name) not in state.layers:
            state = replace(state, layers=state.layers | {(symptom, m.name)})
            events.append(observed(symptom, record.step, m.name, confidence=0.3, rms=s.gradient, absolute=True))
    return state, events
