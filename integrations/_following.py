"""How a spoke follows its tracker: functions of the tracker that are wrapped, and what is told to the watcher."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuraldbg import sinks
from neuraldbg.switch import strict

Undo = Callable[[], None]


@dataclass
class Following:
    """A tracker's `autolog`: on or off, and with which flags.

    factory: makes a session's sink out of the flags. active_runs: ids of the runs that are active on this thread.
    on_step: called after each optimizer step. wraps: each wraps one function of the tracker, and gives what undoes it.
    """

    factory: sinks.Factory
    active_runs: Callable[[], tuple[str, ...]]
    on_step: Callable[[], None]
    wraps: Sequence[Callable[[], Undo]]
    flags: Mapping[str, Any] = field(default_factory=dict)
    _undo: list[Undo] = field(default_factory=list)

    @property
    def is_on(self) -> bool:
        return bool(self._undo)

    def turn_on(self, flags: Mapping[str, Any]) -> None:
        """Watch what trains from now on; where it is on already, the flags alone change."""
        from neuraldbg.watch import discover  # torch, which a process that only reads runs does not need

        self.flags = dict(flags)
        sinks.add_factory(self.factory)
        if not self._undo:
            self._undo = [wrap() for wrap in self.wraps]
        discover.enable(self.active_runs, self.on_step)

    def turn_off(self) -> None:
        """End the sessions that it began, and give back what was wrapped."""
        from neuraldbg.watch import discover

        discover.disable(self.active_runs, self.on_step)
        sinks.remove_factory(self.factory)
        for undo in self._undo:
            undo()
        self._undo = []


def refuse(unknown: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Raise TypeError where `autolog` was given a flag that it has not."""
    for name in unknown:
        raise TypeError(f"autolog() has no flag {name!r}; its flags are: disable, {', '.join(flags)}")


def refuse_seconds(**given: Any) -> None:
    """Raise ValueError where one of these is no positive number of seconds."""
    for name, seconds in given.items():
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
            raise ValueError(f"{name}={seconds!r} is no positive number of seconds; give for example {name}=5.0")


def is_helper() -> bool:
    """Whether this is a rank of a distributed training that has no run of its own: rank 0 alone reports."""
    return os.environ.get("RANK", "0") not in ("", "0")


def replaced(place: Any, name: str, ours: Any) -> Undo:
    """Put `ours` in the place of an attribute; what undoes it, unless another has wrapped it since."""
    original = getattr(place, name)
    setattr(place, name, ours)

    def undo() -> None:
        if getattr(place, name) is ours:
            setattr(place, name, original)

    return undo


def called_before(place: Any, name: str, ours: Callable[..., object]) -> Undo:
    """Let `ours` see the arguments of each call of a function before the call; what undoes it."""
    original = getattr(place, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            quietly(ours, *arguments)
        finally:  # a run ends, also where the user interrupts our diagnosis
            result = original(*arguments, **named)
        return result

    return replaced(place, name, wrapped)


def called_after(place: Any, name: str, ours: Callable[[], object]) -> Undo:
    """Call `ours` after each call of a function that raised nothing; what undoes it."""
    original = getattr(place, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        quietly(ours)
        return result

    return replaced(place, name, wrapped)


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    """Do something of ours inside a call of the user's; an error of ours must not change what that call does."""
    try:
        function(*arguments)
    except Exception as error:
        if strict():
            raise
        sinks.log.error("NeuralDBG had an error and leaves this training alone: %r", error, exc_info=error)
