"""A Diagnosis as JSON that loads back to an equal value."""

from __future__ import annotations

import json
from typing import Any

from neuraldbg.codec import decode, encode
from neuraldbg.diagnosis import SCHEMA_VERSION, Diagnosis
from neuraldbg.report.sentences import why_nothing


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain data, schema_version first; where no step of a training came by, `nothing_seen` says why that may be."""
    data: dict[str, Any] = encode(diagnosis)
    unseen = {"nothing_seen": why_nothing(diagnosis.facts)} if diagnosis.saw_nothing else {}
    return {"schema_version": data.pop("schema_version"), **unseen, **data}


def to_json(diagnosis: Diagnosis, indent: int | None = 1) -> str:
    """The text of `diagnosis.json`; finite numbers only, ASCII only."""
    return json.dumps(to_dict(diagnosis), indent=indent, allow_nan=False)


def from_dict(data: Any) -> Diagnosis:
    """The Diagnosis of plain data; a newer schema is refused."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, bool) or not isinstance(version, int):
        raise ValueError("this is no NeuralDBG diagnosis: it has no schema_version")
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"this diagnosis has schema_version {version}, and this NeuralDBG reads up to {SCHEMA_VERSION}: "
            "upgrade it with `pip install -U neuraldbg`"
        )
    try:
        return decode(Diagnosis, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this diagnosis is damaged: {error}") from error


def from_json(text: str) -> Diagnosis:
    """The Diagnosis that `to_json` wrote."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    return from_dict(data)
