"""Values on the CPU read where they lie, which tensors have such values, and which calls are none of the training's."""

from __future__ import annotations

import ctypes
import math
import struct

import torch
from torch import Tensor, nn

HOST = "cpu"  # where a value can be read without waiting
_C_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def has_values(t: Tensor) -> bool:
    """Whether a tensor's statistics can be taken: its values lie in memory, behind no wrapper and no transform."""
    if type(t).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(t) or torch._is_functional_tensor(t):
        return False
    return t.layout is torch.strided and t.device.type != "meta" and not t.is_nested


def is_plain(t: Tensor) -> bool:
    """Whether a tensor has memory of its own that its values lie in: no wrapper, no fake, nothing inside a transform.

    A subclass of `nn.Parameter` counts as long as it leaves the operators as they are.
    """
    kind = type(t)
    if kind not in (Tensor, nn.Parameter) and not (
        issubclass(kind, nn.Parameter) and kind.__torch_function__ is nn.Parameter.__torch_function__
    ):
        return False
    return has_values(t)


def shard(t: Tensor) -> Tensor:
    """This rank's part of a tensor that is sharded over ranks (a DTensor), any other tensor itself. No collective."""
    if type(t).__name__ != "DTensor":  # by name: torch.distributed.tensor is slow to load and seldom used
        return t
    with torch.no_grad():
        part: Tensor = t.to_local()  # type: ignore[attr-defined]
    return part


def is_measurable(t: Tensor) -> bool:
    """Whether norms and samples can be taken: plain and real."""
    return is_plain(t) and not t.is_complex()


def host_value(t: Tensor) -> float | None:
    """A one-element CPU tensor's value, None for other types and where it cannot be read from memory."""
    if type(t) not in (Tensor, nn.Parameter) or not is_plain(t) or t.is_neg():
        return None
    if t.device.type != HOST or t.numel() != 1 or not t.data_ptr():
        return None
    if t.dtype in _C_TYPES:
        return float(_C_TYPES[t.dtype].from_address(t.data_ptr()).value)
    if t.dtype not in (torch.float16, torch.bfloat16):
        return None
    raw = ctypes.string_at(t.data_ptr(), 2)
    return float(struct.unpack("<e", raw)[0] if t.dtype is torch.float16 else struct.unpack("<f", b"\0\0" + raw)[0])


def same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two states of a generator are equal, compared where they lie: no operator."""
    return ctypes.string_at(a.data_ptr(), a.nbytes) == ctypes.string_at(b.data_ptr(), b.nbytes)


def bad_value(t: Tensor | None) -> bool:
    """Whether a one-element tensor on the CPU is not finite; False where that cannot be told without waiting."""
    if t is None:
        return False
    value = host_value(t)
    return value is not None and not math.isfinite(value)


def aside() -> bool:
    """Whether a forward is none of the training's: an evaluation, a checkpoint that computes again, a transform."""
    if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None
