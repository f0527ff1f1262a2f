"""Coupled failures: two events in causal reach of each other within a few steps."""

from __future__ import annotations

from collections.abc import Iterable

from neuraldbg.diagnosis import Coupling
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.graph import condensed, reaches
from neuraldbg.record import RunFacts

MOST = 50  # a wide model in trouble has thousands of pairs, and they all say the same
FADE = 0.9  # of the confidence for each step between the two


def name(event: SemanticEvent) -> str:
    """An event as a coupling names it: the symptom and its layer."""
    what = event.symptom or f"{event.event_type}:{event.to_state}"
    return f"{what} in '{event.layer_name}'" if event.layer_name else what


def couplings(events: Iterable[SemanticEvent], facts: RunFacts, window: int = 5) -> tuple[Coupling, ...]:
    """Pairs of events in causal reach within `window` steps, once per pair of layers, the surest first."""
    ordered = condensed(events)
    best: dict[tuple[object, object], Coupling] = {}
    for j, later in enumerate(ordered):
        for earlier in ordered[:j]:
            delay = later.step - earlier.step
            if delay > window or reaches(earlier, later, facts, window) is None:
                continue
            confidence = min(earlier.confidence, later.confidence) * FADE**delay
            found = Coupling(name(earlier), name(later), delay, round(confidence, 4))
            pair = (_place(earlier), _place(later))
            if pair not in best or found.confidence > best[pair].confidence:
                best[pair] = found
    return tuple(sorted(best.values(), key=lambda c: (-c.confidence, c.step_difference))[:MOST])


def _place(event: SemanticEvent) -> object:
    """The layer; events of no layer (loss, data, rate) are told apart by what they are."""
    return event.layer_name if event.layer_name is not None else (event.symptom,)
