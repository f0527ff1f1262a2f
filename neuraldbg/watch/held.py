"""What the modules of a model hold beside parameters and buffers, as it was before a second forward.

Numbers, lists, dicts, arrays and plain objects of these are kept and put back. A generator of random numbers, an
iterator, a lock, an open file or anything else whose state cannot be seen is named, for then no second forward is made.
"""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy
import torch
from torch import Tensor, nn

MOST = 100_000  # values looked at; a model that holds more has a data set in it
DEPTH = 8
_FIXED = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, enum.Enum, PurePath, Tensor,
    torch.dtype, torch.device, torch.layout, torch.memory_format, numpy.generic, numpy.dtype,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType, weakref.ref,
)  # fmt: skip
_FILLED = (list, dict, set, deque, OrderedDict, defaultdict, Counter)
_PLAIN = object.__basicsize__ + 2 * tuple.__itemsize__  # an object with a dict and a list of weak references, no more
_OWN = frozenset(vars(nn.Module()))  # what torch itself keeps in every module


class Snapshot:
    """odd: what cannot be put back, in a few words with the module that holds it; "" where all can."""

    def __init__(self, module: nn.Module) -> None:
        self.odd = ""
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []  # or a number that is seen could be another object's
        self._modules = {id(m) for m in module.modules()}
        for name, m in module.named_modules():
            torchs = type(m).__module__.startswith("torch.")  # these change nothing but buffers
            for key, value in vars(m).items():
                if torchs:
                    if type(value) in _FILLED:
                        self._keep(value)
                elif key not in _OWN and not self._take(value, DEPTH):
                    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
                    where = f"module {name!r}" if name else "the model"
                    self.odd = self.odd or f"{where} holds {key!r} ({kind})"

    def restore(self) -> None:
        """Put everything back that has changed."""
        for undo in self._undo:
            undo()

    def _take(self, value: Any, depth: int) -> bool:
        """Keep a value and what is in it; False where it could change and not be put back."""
        if isinstance(value, _FIXED) or id(value) in self._seen:
            return True
        self._seen.add(id(value))
        self._alive.append(value)
        if not depth or len(self._seen) > MOST:
            return False
        inside: Any
        if isinstance(value, nn.Module):
            return id(value) in self._modules
        if isinstance(value, numpy.ndarray):
            if value.dtype.hasobject:
                return False
            self._keep(value)
            return True
        if isinstance(value, types.MethodType):
            inside = (value.__self__,)
        elif isinstance(value, functools.partial):
            inside = (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, (tuple, frozenset)):
            inside = value
        elif type(value) in _FILLED:
            self._keep(value)
            inside = value.values() if isinstance(value, dict) else value
        elif hasattr(value, "__dict__") and type(value).__basicsize__ <= _PLAIN:  # all that it knows is in its dict
            self._keep(vars(value))
            inside = vars(value).values()
        else:
            return callable(value) and type(value).__module__.startswith("torch.")
        return all([self._take(v, depth - 1) for v in inside])

    def _keep(self, held: Any) -> None:
        if isinstance(held, numpy.ndarray):
            if held.flags.writeable:
                self._undo.append(functools.partial(_rewrite, held, held.copy()))
        else:
            self._undo.append(
                functools.partial(_refill, held, list(held.items()) if isinstance(held, dict) else list(held))
            )


def _rewrite(held: Any, before: Any) -> None:
    if held.tobytes() != before.tobytes():
        held[...] = before


def _refill(held: Any, before: list[Any]) -> None:
    """Give a list, dict, set or deque its old content back, unless it still has it."""
    now = list(held.items()) if isinstance(held, dict) else list(held)
    if len(now) == len(before) and all(_same(a, b) for a, b in zip(now, before, strict=True)):
        return
    held.clear()
    if isinstance(held, dict):
        dict.update(held, before)  # a counter's own would add
    elif isinstance(held, set):
        held.update(before)
    else:
        held.extend(before)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(x is y for x, y in zip(a, b, strict=True))
    return a is b
