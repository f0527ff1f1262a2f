"""Frozen values to plain JSON values and back.

`encode` needs no type; `decode` reads the annotations of the dataclasses. Fields that a newer version added are
ignored and those that an older one lacked take their default, so that old and new journals stay readable. JSON has no
NaN and no infinity: they travel as ``{"$float": "nan"}``.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_FLOAT = "$float"


def encode(value: Any) -> Any:
    """The value in dicts, lists, text, numbers, booleans and None."""
    if isinstance(value, Enum):
        return encode(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((encode(v) for v in value), key=str)
    if isinstance(value, Sequence):
        return [encode(v) for v in value]
    if hasattr(value, "item"):  # a number of NumPy's, such as users put into an event's metadata
        return encode(value.item())
    return str(value)


def decode(kind: type[T], plain: Any) -> T:
    """The value of this type that `encode` made `plain` of."""
    return cast(T, _decode(kind, plain))


def _decode(kind: Any, plain: Any) -> Any:
    if isinstance(plain, dict) and plain.keys() == {_FLOAT}:
        return float(plain[_FLOAT])
    if kind is Any:
        return _free(plain)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if plain is None:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), plain)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], v) for v in plain)
        return tuple(_decode(a, v) for a, v in zip(arguments, plain, strict=True))
    if origin in (frozenset, set, list):
        return origin(_decode(arguments[0], v) for v in plain)
    if origin is not None and issubclass(origin, Mapping):
        return {_decode(arguments[0], k): _decode(arguments[1], v) for k, v in plain.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(cast(type, kind), plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(plain)
    return plain


def _dataclass(kind: type, plain: Mapping[str, Any]) -> Any:
    return kind(**{name: _decode(hint, plain[name]) for name, hint in _fields(kind) if name in plain})


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(kind) if f.init)


def _free(plain: Any) -> Any:
    """A value of unknown type; sequences become tuples, as they are in frozen values."""
    if isinstance(plain, list):
        return tuple(_decode(Any, v) for v in plain)
    if isinstance(plain, dict):
        return {k: _decode(Any, v) for k, v in plain.items()}
    return plain
