"""The process-wide signals, there only while a session is open: where backward starts, optimizer and scaler steps.

Optimizer steps come through PyTorch's own global hooks. For the start of backward and for GradScaler there is no hook,
so `torch.autograd.backward` and `GradScaler.step` are wrapped (public functions) and put back with the last session.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim.optimizer import register_optimizer_step_post_hook

from neuraldbg.watch import loader

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_undo: list[Callable[[], None]] = []
_lock = threading.Lock()


def sessions() -> list[Session]:
    return list(_sessions)


def hearing() -> list[Session]:
    """Those whose models run on this thread: a loss that another thread trains by is not theirs."""
    found = sessions()
    here = threading.get_ident()
    return found if len(found) < 2 else [s for s in found if s.thread in (None, here)]


def connect(session: Session) -> None:
    """Let a session hear the signals; the first one installs them."""
    with _lock:
        _sessions.add(session)
        if not _undo:
            _undo.extend(
                [
                    _wrap_backward(),
                    _wrap_scaler(),
                    loader.wrap(),
                    register_optimizer_step_post_hook(_optimizer_stepped).remove,
                ]
            )


def disconnect(session: Session) -> None:
    """Stop; the last one restores everything."""
    with _lock:
        _sessions.discard(session)
        if not _sessions:
            while _undo:
                _undo.pop()()


def _optimizer_stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    for session in sessions():
        session.optimizer_stepped(optimizer)


def _kept(tensors: Any) -> Any:
    """What can be looked at and handed on: an iterator would be used up by the look."""
    if isinstance(tensors, (Tensor, list, tuple)) or not isinstance(tensors, Iterable):
        return tensors
    return tuple(tensors)


def _wrap_backward() -> Callable[[], None]:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = _kept(tensors)
        heard = [] if torch.compiler.is_compiling() else hearing()
        for session in heard:
            session.backward_starts(tensors)
        result = original(tensors, *args, **kwargs)
        for session in heard:
            session.backward_returned()
        return result

    torch.autograd.backward = backward

    def restore() -> None:
        if torch.autograd.backward is backward:  # somebody else may have wrapped it since
            torch.autograd.backward = original

    return restore


def _wrap_scaler() -> Callable[[], None]:
    original, original_scale = GradScaler.step, GradScaler.scale

    @functools.wraps(original)
    def step(self: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = [session.scaler_steps(self, optimizer) for session in sessions()]
        result = original(self, optimizer, *args, **kwargs)
        for session, rounds in zip(sessions(), before, strict=False):
            session.scaler_stepped(optimizer, -1 if rounds is None else rounds)
        return result

    @functools.wraps(original_scale)
    def scale(self: GradScaler, outputs: Any) -> Any:
        outputs = _kept(outputs)
        if self.is_enabled():
            for session in hearing():
                session.loss_scaled(outputs)
        return original_scale(self, outputs)

    GradScaler.step = step  # type: ignore[method-assign]
    GradScaler.scale = scale  # type: ignore[method-assign]

    def restore() -> None:
        if GradScaler.step is step:
            GradScaler.step = original  # type: ignore[method-assign]
        if GradScaler.scale is scale:
            GradScaler.scale = original_scale  # type: ignore[method-assign]

    return restore
