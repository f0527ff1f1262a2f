"""Attention that puts nearly all of its weight on one key, from the start or by collapsing."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

START = 0.35  # entropy over log(keys) in the first steps: failing 0.18-0.21, healthy 0.78 and more
COLLAPSED = 0.15  # later: sharp heads of healthy transformers stay above
SAMPLES = 5  # whose median is the start, and that must be sharp in a row later
WIDTH = 3  # keys; fewer have no room for a distribution


@dataclass(frozen=True)
class Head:
    values: tuple[float, ...] = ()
    first: int = 0
    told: bool = False
    hits: int = 0


def initial(settings: Settings) -> dict[str, Head]:
    return {}


def step(state: dict[str, Head], record: StepRecord, facts: RunFacts) -> tuple[dict[str, Head], list[SemanticEvent]]:
    if not clean(record):
        return state, []
    state, events = dict(state), []
    for m in facts.modules:
        s = record.layers.get(m.name)
        if (
            m.activation != "softmax"
            or m.position == "output"
            or s is None
            or s.entropy is None
            or (m.width or 0) < WIDTH
        ):
            continue
        head = state.get(m.name, Head(first=record.step))
        if len(head.values) < SAMPLES:
            head = replace(head, values=(*head.values, s.entropy))
            if len(head.values) == SAMPLES and statistics.median(head.values) < START:
                events.append(
                    observed(
                        "attention_onehot", head.first, m.name, entropy=statistics.median(head.values), at_start=True
                    )
                )
                head = replace(head, told=True)
        elif not head.told:
            head = replace(head, hits=head.hits + 1 if s.entropy < COLLAPSED else 0)
            if head.hits >= SAMPLES:
                events.append(observed("attention_onehot", record.step, m.name, entropy=s.entropy, at_start=False))
                head = replace(head, told=True)
        state[m.name] = head
    return state, events
