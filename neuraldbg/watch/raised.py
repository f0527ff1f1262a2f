"""Where the user's exception was raised: in a module's forward, in backward, in an optimizer step, or in none."""

from __future__ import annotations

from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING

from torch import nn
from torch.autograd import graph
from torch.optim import Optimizer

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

_CALLS: tuple[CodeType, ...] = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__)
_BACKWARD: tuple[CodeType, ...] = (graph._engine_run_backward.__code__,)


def raised_at(session: Session, error: BaseException, trace: TracebackType | None) -> tuple[str, str | None]:
    """("forward", the module's name), ("backward", None), ("optimizer", None), ("loop", None); ("", None): not known.

    The innermost call that the exception left counts. One that the loop itself raised *from* another was where that
    was: a forward that is caught only to say more of it is still a forward. Names are those of the records.
    """
    if trace is None:  # handed over by a tracker: the calls that are open still tell
        return _forward(session, session.stack[-1]) if session.stack else ("", None)
    known = {id(m): k for k, p in enumerate(session.forward.places) if (m := p.ref()) is not None}
    place, index = "loop", -1
    while trace is not None:
        place, index = _frame(trace.tb_frame, known) or (place, index)
        trace = trace.tb_next
    if place == "forward":
        return _forward(session, index)
    cause = error.__cause__
    if place == "loop" and cause is not None and cause.__traceback__ is not None:
        return raised_at(session, cause, cause.__traceback__)
    return place, None


def _forward(session: Session, index: int) -> tuple[str, str | None]:
    session.names.fix(session)
    return "forward", session.names.module(index)


def _frame(frame: FrameType, known: dict[int, int]) -> tuple[str, int] | None:
    """What this call is, if it is one that tells: a watched module's forward (with its number), backward or a step.

    Another method of a module is none of its forward: a model may hold the training loop itself.
    """
    code, owner = frame.f_code, frame.f_locals.get("self")
    if code in _BACKWARD:
        return "backward", -1
    if isinstance(owner, Optimizer) and code.co_name in ("step", "wrapper"):  # the latter is torch's, around each step
        return "optimizer", -1
    if (code in _CALLS or code.co_name == "forward") and id(owner) in known:  # compiled code has its forward alone
        return "forward", known[id(owner)]
    return None
