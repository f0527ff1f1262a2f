"""The same batch several times running, though there are others: workers that share a random state.

A whole dataset as one batch repeats as well, but then there is only one batch; an epoch in fixed order repeats too,
but never twice running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

BATCHES = 12  # before anything is said
SWITCHES = 2  # from one batch to another: a whole set that is replaced once is no stream
DISTINCT = 64  # batches that are told apart; where there are more, repeats are rare
MAIN = 0.75  # of all batches are the commonest one: then it is the whole set, with a probe in between
SHARE = 0.3  # of batches equal to the one before; chance gives none (failing 0.75, healthy 0)


@dataclass(frozen=True)
class Stream:
    last: float | None = None
    batches: int = 0
    repeats: int = 0
    first: int | None = None
    counts: Mapping[float, int] = field(default_factory=dict)
    switches: int = 0
    rows: int | None = None
    told: bool = False


def initial(settings: Settings) -> dict[str, Stream]:
    return {}


def step(
    state: dict[str, Stream], record: StepRecord, facts: RunFacts
) -> tuple[dict[str, Stream], list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    for x in record.inputs:
        s = state.get(x.name, Stream(rows=x.rows))
        if x.zeros or x.rows != s.rows:
            continue
        same = s.last is not None and x.fingerprint == s.last
        s = replace(
            s,
            last=x.fingerprint,
            batches=s.batches + 1,
            repeats=s.repeats + same,
            first=record.step if same and s.first is None else s.first,
            counts={**s.counts, x.fingerprint: s.counts.get(x.fingerprint, 0) + 1}
            if len(s.counts) < DISTINCT
            else s.counts,
            switches=s.switches + (s.last is not None and not same),
        )
        share = s.repeats / max(1, s.batches - 1)
        several = len(s.counts) > 1 and s.switches >= SWITCHES and max(s.counts.values()) <= MAIN * s.batches
        if several and not s.told and s.batches >= BATCHES and share >= SHARE and s.first is not None:
            distinct, seen = len(s.counts), s.batches
            events.append(observed("repeated_batch", s.first, input=x.name, distinct=distinct, seen=seen, share=share))
            s = replace(s, told=True)
        state = {**state, x.name: s}
    return state, events
