"""A Diagnosis as JSON that loads back to an equal value, and the typed decoder for it.

JSON knows no NaN, no infinity and one kind of sequence. An array is a tuple (the values here are frozen); what an
array or a number cannot say is wrapped in an object with one reserved key: {"float": "nan"}, {"list": [...]}.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from neuraldbg.diagnosis import SCHEMA_VERSION, Diagnosis

T = TypeVar("T")
_RESERVED = ({"float"}, {"list"}, {"map"})
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """Plain JSON data of a frozen value; finite numbers only."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return encode(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        data = {str(k): encode(v) for k, v in value.items()}
        return {"map": data} if set(data) in _RESERVED else data
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, list):
        return {"list": [encode(v) for v in value]}
    if isinstance(value, (set, frozenset)):
        return [encode(v) for v in sorted(value)]
    item = getattr(value, "item", None)  # a NumPy scalar or a one-element tensor that a user put into metadata
    if callable(item) and getattr(value, "ndim", 0) == 0:
        return encode(item())
    return str(value)


def decode(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `encode` made `data` of."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return _untyped(data)
    if origin in (Union, types.UnionType):
        if data is None:
            return None
        return decode(next(a for a in args if a is not type(None)), data)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _fields(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return tuple(decode(args[0], v) for v in data)
        return tuple(decode(a, v) for a, v in zip(args, data, strict=True))
    if origin is frozenset:
        return frozenset(decode(args[0], v) for v in data)
    if origin is not None and issubclass(origin, Mapping):
        inner = data["map"] if set(data) == {"map"} else data
        return {k: decode(args[1], v) for k, v in inner.items()}
    return _untyped(data)


def _fields(kind: type[T], data: Mapping[str, Any]) -> T:
    """Fields that this version does not know are left out; those that the data lacks take their default."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} must be an object, got {type(data).__name__}")
    hints = get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: decode(hints[name], data[name]) for name in data if name in known})


def _untyped(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_untyped(v) for v in data)
    if not isinstance(data, dict):
        return data
    if set(data) == {"float"}:
        return _FLOATS[data["float"]]
    if set(data) == {"list"}:
        return [_untyped(v) for v in data["list"]]
    inner = data["map"] if set(data) == {"map"} else data
    return {k: _untyped(v) for k, v in inner.items()}


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain data, schema_version first."""
    data: dict[str, Any] = encode(diagnosis)
    return {"schema_version": data.pop("schema_version"), **data}


def to_json(diagnosis: Diagnosis, indent: int | None = 1) -> str:
    """The text of `diagnosis.json`."""
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
        return _fields(Diagnosis, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this diagnosis is damaged: {error}") from error


def from_json(text: str) -> Diagnosis:
    """The Diagnosis that `to_json` wrote."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    return from_dict(data)
