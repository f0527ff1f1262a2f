"""NaN and infinite values in the batch that enters the model."""

from __future__ import annotations

from typing import Any

from neuraldbg.detectors._common import batch_of
from neuraldbg.events import LISTED, SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

MOST = 20  # events of each kind; later batches say nothing new


def initial(settings: Settings) -> tuple[int, int]:
    return 0, 0


def step(state: tuple[int, int], record: StepRecord, facts: RunFacts) -> tuple[tuple[int, int], list[SemanticEvent]]:
    nans, infs = state
    events: list[SemanticEvent] = []
    first = next((m.name for m in facts.modules if m.order == 0), None)
    for x in record.inputs:
        detail: dict[str, Any] = {
            "features": x.bad_features[:LISTED],
            "rows": x.bad_rows[:LISTED],
            **batch_of(record, None, x.bad_rows),
            "input": x.name,
            "batch": x.rows,
            "enters": first,
        }
        if x.nans and nans < MOST:
            nans += 1
            events.append(observed("nan_input", record.step, count=x.nans, **detail))
        if x.infs and infs < MOST:
            infs += 1
            events.append(observed("inf_input", record.step, count=x.infs, **detail))
    culprit = record.culprit
    if culprit is not None and culprit.phase == "input" and not events and culprit.detail in ("nan", "inf"):
        symptom = f"{culprit.detail}_input"  # a step whose inputs were not measured: the replay saw them
        where = batch_of(record, None)
        events.append(observed(symptom, record.step, enters=culprit.module or first, **where))
        nans, infs = nans + (culprit.detail == "nan"), infs + (culprit.detail == "inf")
    return (nans, infs), events
