"""Batches that arrive as zeros while others do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import batch_of
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

OTHERS = 3  # batches that were not zero, before one that is counts as an anomaly (a state may start at zero)
MOST = 20  # that are told; later ones say nothing new


@dataclass(frozen=True)
class Seen:
    batches: int = 0
    zeros: int = 0


def initial(settings: Settings) -> dict[str, Seen]:
    return {}


def step(state: dict[str, Seen], record: StepRecord, facts: RunFacts) -> tuple[dict[str, Seen], list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    for x in record.inputs:
        seen = state.get(x.name, Seen())
        if x.zeros and seen.batches - seen.zeros >= OTHERS and seen.zeros < MOST:
            share = (seen.zeros + 1) / (seen.batches + 1)
            events.append(observed("zero_batch", record.step, input=x.name, share=share, **batch_of(record, None)))
        state = {**state, x.name: replace(seen, batches=seen.batches + 1, zeros=seen.zeros + x.zeros)}
    return state, events
