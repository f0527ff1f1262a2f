"""How a spoke follows its tracker: functions of the tracker that are wrapped, and what is told to the watcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuraldbg import sinks
from neuraldbg.switch import strict


def replaced(place: Any, name: str, ours: Any) -> Callable[[], None]:
    """Put `ours` in the place of an attribute; what undoes it, unless another has wrapped it since."""
    original = getattr(place, name)
    setattr(place, name, ours)

    def undo() -> None:
        if getattr(place, name) is ours:
            setattr(place, name, original)

    return undo


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    """Do something of ours inside a call of the user's; an error of ours must not change what that call does."""
    try:
        function(*arguments)
    except Exception as error:
        if strict():
            raise
        sinks.log.error("NeuralDBG had an error and leaves this training alone: %r", error, exc_info=error)
