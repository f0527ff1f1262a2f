"""Operators by plain name: whether one left the finite numbers, why, and where in the user's code it was called."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_CALL = nn.Module._call_impl.__code__


@dataclass(frozen=True)
class Found:
    """An operator that made the first non-finite value. `place` is the number of the watched module it ran in."""

    operator: str | None
    phase: str
    place: int | None = None
    file: str | None = None
    line: int | None = None
    detail: str = ""


class Where(NamedTuple):
    """A place in the user's code: number of the watched module, file name, line."""

    place: int | None
    file: str | None
    line: int | None


def plain_name(name: str) -> str:
    """The operator as users write it.

    >>> plain_name("aten::_softmax"), plain_name("aten::log_"), plain_name("aten::native_batch_norm")
    ('softmax', 'log', 'batch_norm')
    """
    plain = name.rpartition("::")[2].strip("_").removeprefix("native_")
    for family in ("scaled_dot_product_attention", "batch_norm"):  # variants of one operator for a device or format
        if plain.startswith(family.removesuffix("_attention")):
            return family
    return plain


def node_name(node: Any) -> str:
    """The operator that an autograd node belongs to; a function of the user's own keeps the name of its class.

    SqrtBackward0 is sqrt, NllLossBackward0 is nll_loss, a class Clamp(torch.autograd.Function) is Clamp.
    """
    name = str(node.name())
    base = re.sub(r"Backward\d*$", "", name)
    if is_custom(node):
        return base
    return plain_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base).lower())


def is_custom(node: Any) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in an operator's arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def readable(t: Tensor) -> bool:
    """Whether its values are plain floating-point numbers in memory."""
    if t.layout is not torch.strided or t.is_nested or t.is_quantized or t.device.type == "meta":
        return False
    return (t.is_floating_point() or t.is_complex()) and t.numel() > 0


def finite(t: Tensor) -> bool:
    return not readable(t) or bool(torch.isfinite(t).all())


def kinds(values: Iterable[Tensor]) -> tuple[bool, bool]:
    """(any NaN, any infinity) in these tensors."""
    nan = inf = False
    for t in values:
        if not finite(t):
            nan = nan or bool(torch.isnan(t).any())
            inf = inf or bool(torch.isinf(t).any())
    return nan, inf


def numbers(value: Any) -> Iterator[float]:
    """The plain numbers among an operator's arguments."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from numbers(part)


def storage(t: Tensor) -> int:
    """Where its memory begins; 0 for what has none."""
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:  # sparse, meta and wrapper tensors have no storage to point at
        return 0


_DOMAIN = {
    "log": (0.0, math.inf), "log2": (0.0, math.inf), "log10": (0.0, math.inf), "log1p": (-1.0, math.inf),
    "sqrt": (0.0, math.inf), "acos": (-1.0, 1.0), "asin": (-1.0, 1.0), "atanh": (-1.0, 1.0), "acosh": (1.0, math.inf),
}  # fmt: skip
_LEAST = {"log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0}  # where these are minus infinity
_DIVIDES = ("div", "true_divide", "reciprocal", "rsqrt")
_OVER_ALL = ("mean", "std", "var", "std_mean", "var_mean")


def reason(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Why this operator's result cannot be finite, read from its arguments; "" where they do not tell.

    One of zero_divisor, empty, zero_argument, outside_domain, masked_row.
    """
    given = args[0] if args else kwargs.get("self")
    if not isinstance(given, Tensor):
        return ""
    if name in _OVER_ALL and not given.numel():
        return "empty"
    if name in ("batch_norm", "layer_norm", "group_norm") and _vanishes(args[-1], given):
        return "zero_divisor"
    if name in _DIVIDES:
        divisor = args[1] if name not in ("reciprocal", "rsqrt") and len(args) > 1 else given
        if _zero(divisor):
            return "zero_divisor"
        return "outside_domain" if name == "rsqrt" and bool((given < 0).any()) else ""
    if name == "pow" and len(args) > 1:
        return _power(given, args[1])
    if name in _DOMAIN and not given.is_complex():
        low, high = _DOMAIN[name]
        if bool(((given < low) | (given > high)).any()):
            return "outside_domain"
        return "zero_argument" if name in _LEAST and bool((given == _LEAST[name]).any()) else ""
    if name in ("softmax", "log_softmax") and len(args) > 1 and given.dim():
        return "masked_row" if bool((given == -math.inf).all(dim=args[1]).any()) else ""
    return ""


def _zero(value: Any) -> bool:
    return bool((value == 0).any()) if isinstance(value, Tensor) else value == 0


def _vanishes(eps: Any, like: Tensor) -> bool:
    """Whether a number is zero in the format of this tensor."""
    return isinstance(eps, float) and not torch.full((), eps, dtype=like.dtype)


def _power(base: Tensor, exponent: Any) -> str:
    below = exponent < 0 if isinstance(exponent, Tensor) else torch.full((), exponent < 0)
    if bool(((base == 0) & below).any()):
        return "zero_divisor"
    fraction = exponent != (exponent.round() if isinstance(exponent, Tensor) else round(exponent))
    return "outside_domain" if not base.is_complex() and bool(((base < 0) & fraction).any()) else ""


def foreign(frame: FrameType) -> bool:
    """Whether this is neither torch's code nor ours."""
    name = frame.f_globals.get("__name__")
    return not (isinstance(name, str) and (name == "torch" or name.startswith(("torch.", "neuraldbg."))))


def users_line(frame: FrameType | None, stop: CodeType | None = None) -> tuple[str, int] | None:
    """(file name, line) of the innermost frame of the user's, or of a library's that is built on torch."""
    while frame is not None and frame.f_code is not stop:
        if foreign(frame):
            return os.path.basename(frame.f_code.co_filename), frame.f_lineno
        frame = frame.f_back
    return None


def where(frame: FrameType | None, stop: CodeType, places: Mapping[int, int], caller: tuple[str, int] | None) -> Where:
    """The watched module whose call this frame lies in, and the user's line; `caller` stands in where torch made it."""
    line = users_line(frame, stop) or caller or (None, None)
    while frame is not None and frame.f_code is not stop:
        if frame.f_code is _CALL and (place := places.get(id(frame.f_locals.get("self")))) is not None:
            return Where(place, *line)
        frame = frame.f_back
    return Where(None, *line)
