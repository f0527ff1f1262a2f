"""A gradient that an optimizer has used is used again: `zero_grad` is missing. An exact fact."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

SHARE = 0.5  # of the tensors with gradient
IN_A_ROW = 3  # samples: a first step on gradients that were left from before is no habit


@dataclass(frozen=True)
class State:
    hits: int = 0
    since: int = 0
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.sampled or not record.stepped or state.told:
        return state, []
    given = [p for p in record.parameters.values() if p.gradient is not None]
    share = sum(p.carried for p in given) / len(given) if given else 0.0
    if share < SHARE:
        return replace(state, hits=0), []
    state = replace(state, hits=state.hits + 1, since=state.since if state.hits else record.step)
    if state.hits < IN_A_ROW:
        return state, []
    return replace(state, told=True), [observed("carried_gradient", state.since, share=share, steps=state.hits)]
