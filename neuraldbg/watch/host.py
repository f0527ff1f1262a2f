"""Values on the CPU read where they lie: no operator is called and there is nothing to wait for."""

from __future__ import annotations

import ctypes
import math
import struct

import torch
from torch import Tensor

HOST = "cpu"  # where a value can be read without waiting
_C_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def host_value(t: Tensor) -> float | None:
    """A one-element CPU tensor's value, None for other types."""
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
    if t is None or t.device.type != HOST or t.numel() != 1:
        return False
    value = host_value(t)
    return value is not None and not math.isfinite(value)
