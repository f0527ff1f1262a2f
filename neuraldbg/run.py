"""A run as rules see it: ordered events, facts, decimated series, and the questions that rules ask."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from neuraldbg.events import Phase, SemanticEvent
from neuraldbg.record import RunFacts


@dataclass(frozen=True)
class Series:
    """A number over the steps, decimated: `points` are (step, value), oldest first, finite values only."""

    points: tuple[tuple[int, float], ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(s for s, _ in self.points)

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(v for _, v in self.points)

    def between(self, first: int, last: int) -> tuple[float, ...]:
        """Values of the steps first..last, both included."""
        return tuple(v for s, v in self.points if first <= s <= last)

    def head(self, count: int | None = None) -> float | None:
        """Median of the first `count` points (default: a twentieth, 3 to 10)."""
        count = count or max(3, min(10, len(self.points) // 20))
        return median(self.values[:count])

    def tail(self, count: int = 20) -> float | None:
        """Median of the last `count` points."""
        return median(self.values[-count:])


def median(values: Sequence[float]) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    return statistics.median(finite) if finite else None


EMPTY = Series()
NONFINITE = (
    "nan_input",
    "inf_input",
    "nonfinite_activation",
    "loss_nonfinite",
    "nonfinite_gradient",
    "nonfinite_weight",
)
"""Symptoms of values that are not finite, wherever they show."""


@dataclass(frozen=True)
class Run:
    """Read-only view of one training.

    series: loss, skill (the loss operator's own loss / chance), gradient_norm, rate (largest group),
    update (median over weight tensors of rms(dw)/rms(w)), cosine, validation (where recorded), rows (samples a step);
    none of them a logarithm. steps: how many were seen. finished: False while the training goes on.
    """

    events: tuple[SemanticEvent, ...] = ()
    facts: RunFacts = field(default_factory=RunFacts)
    series: dict[str, Series] = field(default_factory=dict)
    steps: int = 0
    finished: bool = True

    def all(
        self,
        *symptoms: str,
        layer: str | None = None,
        before: SemanticEvent | int | None = None,
    ) -> Iterator[SemanticEvent]:
        """Events of these symptoms in order of (step, phase); `before`: strictly earlier than it; no recoveries."""
        for event in self.events:
            if event.symptom not in symptoms or event.is_recovery:
                continue
            if layer is not None and event.layer_name != layer:
                continue
            if isinstance(before, SemanticEvent) and event.order >= before.order:
                continue
            if isinstance(before, int) and event.step >= before:
                continue
            yield event

    def first(
        self,
        *symptoms: str,
        layer: str | None = None,
        before: SemanticEvent | int | None = None,
    ) -> SemanticEvent | None:
        return next(self.all(*symptoms, layer=layer, before=before), None)

    def has(self, *symptoms: str) -> bool:
        return self.first(*symptoms) is not None

    def get(self, name: str) -> Series:
        return self.series.get(name, EMPTY)

    @property
    def skill(self) -> float | None:
        """Loss / chance at the end (median of the last 20 points); None where chance is unknown."""
        return self.get("skill").tail()

    @property
    def first_nonfinite(self) -> SemanticEvent | None:
        return self.first(*NONFINITE)

    def in_phase(self, *phases: Phase, until: int) -> list[SemanticEvent]:
        """Events of these phases up to and including a step."""
        return [e for e in self.events if e.phase in phases and e.step <= until and not e.is_recovery]


def ordered(events: Sequence[SemanticEvent]) -> tuple[SemanticEvent, ...]:
    """Events by (step, phase); equal ones keep the order in which they were seen."""
    return tuple(sorted(events, key=lambda e: e.order))
