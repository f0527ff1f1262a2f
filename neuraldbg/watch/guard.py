"""The guard around every entry of a session: nothing of ours reaches the user's loop, and what it takes is counted."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from neuraldbg.switch import strict
from neuraldbg.watch.stopping import asked_for

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[P, R]) -> Callable[P, R | None]:
    """Run only while watching, in the process that opened the session; keep our own errors to ourselves."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        session: Session = args[0]  # type: ignore[assignment]
        if not session.live or os.getpid() != session.pid:
            return None
        start = time.perf_counter()
        session.depth += 1
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if strict() or asked_for(error):
                raise
            session.fail(error)
            return None
        finally:
            session.depth -= 1
            if not session.depth:
                session.spent += time.perf_counter() - start

    return call
