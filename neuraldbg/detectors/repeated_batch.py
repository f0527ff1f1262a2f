"""The same batch several times running, though there are others: workers that share a random state.

A whole dataset as one batch repeats as well, but then there is only one batch; an epoch in fixed order repeats too,
but never twice running.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

BATCHES = 12  # before anything is said
SHARE = 0.3  # of batches equal to the one before; chance gives none (evidence.md: failing 0.75, healthy 0)


@dataclass(frozen=True)
class Stream:
    last: float | None = None
    batches: int = 0
    repeats: int = 0
    first: int | None = None
    distinct: frozenset[float] = frozenset()
    told: bool = False


def initial(settings: Settings) -> dict[str, Stream]:
    return {}


def step(
    state: dict[str, Stream], record: StepRecord, facts: RunFacts
) -> tuple[dict[str, Stream], list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    for x in record.inputs:
        if x.zeros:
            continue
        s = state.get(x.name, Stream())
        same = s.last is not None and x.fingerprint == s.last
        s = replace(
            s,
            last=x.fingerprint,
            batches=s.batches + 1,
            repeats=s.repeats + same,
            first=record.step if same and s.first is None else s.first,
            distinct=s.distinct | {x.fingerprint} if len(s.distinct) < 64 else s.distinct,
        )
        share = s.repeats / max(1, s.batches - 1)
        known = not s.told and s.batches >= BATCHES and len(s.distinct) > 1
        if known and share >= SHARE and s.first is not None:
            distinct, seen = len(s.distinct), s.batches
            events.append(observed("repeated_batch", s.first, input=x.name, distinct=distinct, seen=seen, share=share))
            s = replace(s, told=True)
        state = {**state, x.name: s}
    return state, events
