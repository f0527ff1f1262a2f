"""The learning rate has come down to zero and the training goes on: every later step is wasted."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

ZERO = 1e-6  # of the highest rate: cosine schedules end within 1e-5 of it, and no such step moves anything
STEPS = 20  # at zero; a schedule that is a few steps short of the run is usual
SHARE = 0.2  # of the run


@dataclass(frozen=True)
class State:
    highest: float = 0.0
    since: int | None = None
    last: int = 0
    gradients: int = 0


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.rates or not record.stepped:
        return state, []
    rate = max(record.rates)
    state = replace(state, highest=max(state.highest, rate), last=record.step)
    if rate > ZERO * state.highest:
        return replace(state, since=None, gradients=0), []
    return replace(
        state,
        since=record.step if state.since is None else state.since,
        gradients=state.gradients + bool(record.gradient_norm),
    ), []


def finish(state: State, facts: RunFacts) -> list[SemanticEvent]:
    """Told at the end, for a rate that is warm again by then was only between two cycles."""
    if state.since is None or not state.gradients or state.highest <= 0:
        return []
    steps, whole = state.last - state.since + 1, state.last + 1
    if steps < max(STEPS, SHARE * whole):
        return []
    return [observed("rate_zero", state.since, before=state.highest, steps=steps, share=steps / whole)]
