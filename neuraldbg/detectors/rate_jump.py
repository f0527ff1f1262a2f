"""The learning rate leaves what it has been by a jump: a scheduler's bug, a resume, a wrong unit."""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.detectors._common import lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

UP_LG = 0.7  # beyond the highest rate seen: warm restarts return to it, warm-ups double at most (0.30)
STEPS = 5  # at a rate before a jump from it means anything
MOST = 5  # that are told; more say nothing new


@dataclass(frozen=True)
class State:
    highest: tuple[float, ...] = ()
    steps: int = 0
    told: int = 0


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.rates:
        return state, []
    if len(record.rates) != len(state.highest):
        return State(record.rates, 1, state.told), []
    events: list[SemanticEvent] = []
    for rate, highest in zip(record.rates, state.highest, strict=True):
        if highest > 0 and lg(rate) - lg(highest) > UP_LG and state.steps >= STEPS and state.told + len(events) < MOST:
            events.append(
                observed("rate_jump", record.step, decades=lg(rate) - lg(highest), before=highest, after=rate)
            )
            break
    highest_now = tuple(max(a, b) for a, b in zip(record.rates, state.highest, strict=True))
    return State(highest_now, state.steps + 1, state.told + len(events)), events
