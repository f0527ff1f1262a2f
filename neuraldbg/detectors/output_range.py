"""An output activation that cannot produce the targets, or whose units are dead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import ModuleFacts, RunFacts, StepRecord
from neuraldbg.settings import Settings

RANGES = {"relu": (0.0, float("inf")), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
REACHED = 0.9  # of the target range; less of it out of reach is rounding or label noise
DEAD = 0.15  # share of output units: one of six classes that can never be predicted


@dataclass(frozen=True)
class Seen:
    ranges: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    steps: tuple[int, ...] = ()


def initial(settings: Settings) -> Seen:
    return Seen()


def step(state: Seen, record: StepRecord, facts: RunFacts) -> tuple[Seen, list[SemanticEvent]]:
    if not record.sampled or record.first_bad is not None:
        return state, []
    state = replace(state, steps=(*state.steps, record.step)[-40:])
    events: list[SemanticEvent] = []
    for m in facts.modules:
        if m.position != "output" or m.activation not in RANGES or m.name not in record.layers:
            continue
        covered = coverage(m, record)
        if covered is not None and covered < REACHED and m.name not in state.ranges:
            state = replace(state, ranges=state.ranges | {m.name})
            low, high = RANGES[m.activation]
            loss = record.loss_stats
            events.append(
                observed(
                    "output_range",
                    record.step,
                    m.name,
                    low=low,
                    high=high,
                    covered=covered,
                    dead=None,
                    target_low=loss.target_low if loss else None,
                    target_high=loss.target_high if loss else None,
                )
            )
        dead = record.layers[m.name].dead
        if m.activation == "relu" and dead is not None and dead >= DEAD and m.name not in state.dead:
            state = replace(state, dead=state.dead | {m.name})
            window = state.steps[-(record.window or 1) :]
            events.append(observed("output_range", window[0], m.name, low=0.0, covered=covered, dead=dead))
    return state, events


def coverage(m: ModuleFacts, record: StepRecord) -> float | None:
    """Share of this batch's target range that the activation can produce; None where targets are unknown."""
    loss = record.loss_stats
    if loss is None or loss.kind == "nll" or loss.target_low is None or loss.target_high is None:
        return None
    low, high = RANGES[m.activation]
    width = loss.target_high - loss.target_low
    if width <= 0:
        return 1.0 if low <= loss.target_low <= high else 0.0
    return max(0.0, min(high, loss.target_high) - max(low, loss.target_low)) / width
