"""A GradScaler that skips one step after the other: it does not find a scale, and nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed, recovered
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

IN_A_ROW = 40  # skipped steps; halving finds any scale below 2**40 by then, the usual start is 2**16


@dataclass(frozen=True)
class State:
    since: int = 0
    steps: int = 0
    told: SemanticEvent | None = None


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.skipped:
        return (State(), [recovered(state.told, record.step)]) if state.told else (State(), [])
    state = replace(state, since=state.since if state.steps else record.step, steps=state.steps + 1)
    if state.steps != IN_A_ROW:
        return state, []
    event = observed("all_skipped", state.since, steps=state.steps, scale=record.loss_scale)
    return replace(state, told=event), [event]
