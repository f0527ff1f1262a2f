"""The trace of one training: records go in, detectors turn them into events, and a `Run` comes out for the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.record import LossStats, RunFacts, StepRecord
from neuraldbg.run import Run, Series, median, ordered
from neuraldbg.settings import Settings

POINTS = 1200  # points kept of a series; the head and the tail stay whole, the middle is thinned
HEAD, TAIL = 60, 300
WEIGHT_ELEMENTS = 16  # an update ratio of a smaller tensor jumps at random (evidence.md 4)


class EventLog(list[SemanticEvent]):
    """The events, in the order seen; users may append their own. Bounded by `prune`."""

    def prune(self, most: int) -> int:
        """Drop events until at most `most` are left; returns how many went.

        First occurrences (per symptom and layer) are never dropped; of the others the confident and recent stay.
        """
        if len(self) <= most:
            return 0
        seen: set[tuple[str, str | None, str]] = set()
        first: list[int] = []
        later: list[int] = []
        for k, e in enumerate(self):
            key = (e.symptom or str(e.to_state), e.layer_name, str(e.to_state))
            (later if key in seen else first).append(k)
            seen.add(key)
        newest = max(e.step for e in self) or 1
        later.sort(key=lambda k: (self[k].confidence + self[k].step / newest, k), reverse=True)
        keep = sorted(first + later[: max(0, most - len(first))])
        dropped = len(self) - len(keep)
        self[:] = [self[k] for k in keep]
        return dropped


class Trace:
    """State of one session on the hub's side; it sees numbers only."""

    def __init__(self, settings: Settings, detectors: Sequence[Any]) -> None:
        self.settings = settings
        self.detectors = list(detectors)
        self.states = [d.initial(settings) for d in self.detectors]
        self.events = EventLog()
        self.facts = RunFacts()
        self.points: dict[str, list[tuple[int, float]]] = {}
        self.steps = 0
        self.dropped = 0
        self.listener: Callable[[SemanticEvent], None] | None = None

    def feed(self, record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
        """Take in one step; returns the events it brought."""
        self.facts = facts
        self.steps = max(self.steps, record.step + 1)
        self._extend(record)
        new: list[SemanticEvent] = []
        for k, detector in enumerate(self.detectors):
            self.states[k], events = detector.step(self.states[k], record, facts)
            new.extend(events)
        self._take(new)
        return new

    def _take(self, new: Sequence[SemanticEvent]) -> None:
        self.events.extend(new)
        if self.listener is not None:
            for event in new:
                self.listener(event)
        if len(self.events) > self.settings.max_events * 1.25:
            self.dropped += self.events.prune(self.settings.max_events)

    def _extend(self, record: StepRecord) -> None:
        weights = {p.name for p in self.facts.parameters if p.dims > 1 and p.numel >= WEIGHT_ELEMENTS and p.rms}
        ratios = [p.update for n, p in record.parameters.items() if n in weights and p.update]
        update = median(ratios)
        skill = skill_of(record.loss_stats)
        values = {
            "loss": record.loss,
            "gradient_norm": record.gradient_norm,
            "rate": max(record.rates, default=None),
            "cosine": record.cosine,
            "update": update,
            "skill": skill,
            "validation": record.validation,
            "rows": _rows(record),
        }
        for name, value in values.items():
            if value is not None and math.isfinite(value):
                points = self.points.setdefault(name, [])
                points.append((record.step, float(value)))
                if len(points) > POINTS:
                    points[HEAD:-TAIL] = points[HEAD:-TAIL:2]

    def finish(self, facts: RunFacts) -> list[SemanticEvent]:
        """What can only be said at the end; calling it does not change the states."""
        self.facts = facts
        new: list[SemanticEvent] = []
        for detector, state in zip(self.detectors, self.states, strict=True):
            ending = getattr(detector, "finish", None)
            if ending is not None:
                new.extend(ending(state, facts))
        return new

    def run(self, finished: bool, facts: RunFacts) -> Run:
        """The run as rules see it."""
        ending = self.finish(facts)
        log = EventLog([*self.events, *ending])
        log.prune(self.settings.max_events)
        return Run(
            events=ordered(log),
            facts=facts,
            series={name: Series(tuple(points)) for name, points in self.points.items()},
            steps=self.steps,
            finished=finished,
        )


def _rows(record: StepRecord) -> float | None:
    """Samples that this step's update has seen: the batch, times the micro-batches that were accumulated."""
    return float(max(x.rows for x in record.inputs) * max(1, record.backwards)) if record.inputs else None


def skill_of(stats: LossStats | None) -> float | None:
    """The loss operator's loss over the loss of a constant prediction."""
    if stats is None or stats.value is None or not stats.chance or stats.chance < 1e-12:
        return None
    return stats.value / stats.chance
