"""Hypotheses as plain columns and rows, the form that trackers' tables take."""

from __future__ import annotations

from typing import Any

from neuraldbg.diagnosis import Diagnosis

COLUMNS = ("rank", "cause", "failure_type", "layer", "step", "confidence", "description", "remedy", "refuted_by")


def hypotheses_table(diagnosis: Diagnosis) -> dict[str, list[Any]]:
    """{"columns": [...], "data": [[...], ...]}, best first; notes of a healthy or warning run follow with rank None."""
    rows = [(rank, h) for rank, h in enumerate(diagnosis.hypotheses, 1)]
    data = [
        [rank, h.cause, h.failure_type, h.layer_name, h.step, h.confidence, h.description, h.remedy, h.refuted_by]
        for rank, h in [*rows, *((None, h) for h in diagnosis.notes)]
    ]
    return {"columns": list(COLUMNS), "data": data}
