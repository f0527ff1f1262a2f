"""Where a session's findings go: the `Sink` protocol, its registry, `Memory`, and the fan-out.

A sink gets four calls, all from a worker thread of its own: `open` once, `facts` as more becomes known, `event` for
each event, `close` with the final Diagnosis. Four more are optional and looked up by name:

    bind() -> bool                on the training thread, before each hand-over, until it returns True: for what only
                                  that thread can see (a tracker's active run)
    points(step, {name: value})   the series of the session (loss, gradient norm, ...)
    held(place, record, facts)    one of the first steps, while it is not known yet what it is (`watch/waiting.py`):
                                  nothing to tell anybody, but to keep in case the process is killed meanwhile
    idle()                        from the worker, about once a second while nothing comes in

and three attributes: `close_timeout` (seconds, default 10), `advice` (what to type when it did not get everything) and
`silent` (its failures are logged at debug level).
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.switch import strict

log = logging.getLogger("neuraldbg")

CAPACITY = 10_000  # waiting items a sink; an event costs under 1 KB
CLOSE_TIMEOUT = 10.0
IDLE_SECONDS = 1.0


class Sink(Protocol):
    def open(self, facts: RunFacts) -> None: ...
    def facts(self, update: RunFacts) -> None: ...
    def event(self, event: SemanticEvent) -> None: ...
    def close(self, diagnosis: Diagnosis) -> None: ...


Factory = Callable[[], "Sink | None"]
_factories: list[Factory] = []


def add_factory(factory: Factory) -> None:
    """Ask `factory` for a sink at the start of each session, on the training thread; twice added is once."""
    if factory not in _factories:
        _factories.append(factory)


def remove_factory(factory: Factory) -> None:
    if factory in _factories:
        _factories.remove(factory)


def from_factories() -> list[Sink]:
    """The sinks of all factories for a session that starts now; a factory that fails is named and left out."""
    made = (_ask(factory) for factory in (*_factories, *_installed()))
    return [sink for sink in made if sink is not None]


def _ask(factory: Factory) -> Sink | None:
    try:
        return factory()
    except Exception:
        if strict():
            raise
        log.warning("NeuralDBG goes on without the sink of %r", factory, exc_info=True)
        return None


@cache
def _installed() -> tuple[Factory, ...]:
    """Factories that installed packages name under the entry point group `neuraldbg.sinks`."""
    found = []
    for entry in importlib.metadata.entry_points(group="neuraldbg.sinks"):
        try:
            found.append(entry.load())
        except Exception:
            log.warning("NeuralDBG goes on without the sink %r", entry.name, exc_info=True)
    return tuple(found)


class Memory:
    """A sink that keeps what it gets: the test double, and for looking at a session by hand."""

    def __init__(self) -> None:
        self.opened: RunFacts | None = None
        self.updates: list[RunFacts] = []
        self.events: list[SemanticEvent] = []
        self.series: dict[str, list[tuple[int, float]]] = {}
        self.diagnosis: Diagnosis | None = None

    def open(self, facts: RunFacts) -> None:
        self.opened = facts

    def facts(self, update: RunFacts) -> None:
        self.updates.append(update)

    def event(self, event: SemanticEvent) -> None:
        self.events.append(event)

    def points(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.series.setdefault(name, []).append((step, value))

    def close(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis


class FanOut:
    """Hands everything to all sinks, each on a daemon thread of its own; no call but `close` ever waits.

    One thread a sink, so that a tracker whose server hangs holds up neither the journal nor another tracker.
    """

    def __init__(
        self,
        sinks: Iterable[Sink],
        *,
        journal_path: Path | str | None = None,
        journal_mb: float = 64.0,
        capacity: int = CAPACITY,
    ) -> None:
        self.journal_path = Path(journal_path) if journal_path is not None else None
        all_sinks = list(sinks)
        if self.journal_path is not None:
            from neuraldbg.journal import Journal  # it reads diagnoses, which few sessions do

            all_sinks.insert(0, Journal(self.journal_path, max_mb=journal_mb))
        self._lanes = [Lane(sink, capacity) for sink in all_sinks]
        self._closed = False
        # A session that is dropped without being closed must not leave its threads behind.
        weakref.finalize(self, _stop, self._lanes).atexit = False
        _open_fanouts.add(self)

    def open(self, facts: RunFacts) -> None:
        for lane in self._lanes:
            lane.put("open", facts)

    def facts(self, update: RunFacts) -> None:
        for lane in self._lanes:
            lane.put("facts", update)

    def event(self, event: SemanticEvent) -> None:
        for lane in self._lanes:
            lane.put("event", event)

    def points(self, step: int, values: Mapping[str, float]) -> None:
        for lane in self._lanes:
            if lane.wants_points:
                lane.put("points", step, values)

    def held(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        for lane in self._lanes:
            if hasattr(lane.sink, "held"):
                lane.put("held", place, record, facts)

    def close(self, diagnosis: Diagnosis, timeout: float | None = None) -> None:
        """Hand over the final Diagnosis and wait for the sinks, at most `timeout` or their own `close_timeout`."""
        if self._closed:
            return
        self._closed = True
        for lane in self._lanes:
            lane.finish(diagnosis)
        start = time.monotonic()
        for lane in self._lanes:
            lane.wait(start + (lane.close_timeout if timeout is None else timeout), self.journal_path)
        if strict():
            for lane in self._lanes:
                if lane.error is not None:
                    raise lane.error

    def _forget(self) -> None:
        """In a forked child: threads did not come along, and the parent's findings are the parent's to tell."""
        self._lanes.clear()
        self._closed = True


class Lane:
    """A sink, the items that wait for it, and the daemon thread that hands them over."""

    def __init__(self, sink: Sink, capacity: int = CAPACITY) -> None:
        self.sink = sink
        self.error: BaseException | None = None
        self.wants_points = hasattr(sink, "points")
        self.close_timeout = float(getattr(sink, "close_timeout", CLOSE_TIMEOUT))
        self._level = logging.DEBUG if getattr(sink, "silent", False) else logging.WARNING
        self._bind: Callable[[], bool] | None = getattr(sink, "bind", None)
        self._idle: Callable[[], None] | None = getattr(sink, "idle", None)
        self._waiting: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._capacity = capacity
        self._dropped = 0
        self._wake = threading.Condition()
        self._abandoned = False
        self._finishing = False
        self._done = threading.Event()
        threading.Thread(target=self._work, name="neuraldbg-sink", daemon=True).start()

    def put(self, call: str, *arguments: Any) -> None:
        """Queue a call; from the training thread, never waiting."""
        if call != "open":  # the training may begin long after its session, and in another run
            self._probe()
        with self._wake:
            if self.error is not None or self._finishing:
                return
            if len(self._waiting) < self._capacity:
                self._waiting.append((call, arguments))
                self._wake.notify()
                return
            self._dropped += 1
            first = self._dropped == 1
        if first:
            log.log(
                self._level, "%s is too slow for the events of this training; some are left out there", _name(self.sink)
            )

    def finish(self, diagnosis: Diagnosis) -> None:
        """Queue the final Diagnosis, which no full queue keeps out."""
        self._probe()
        with self._wake:
            self._finishing = True
            if self.error is None:
                self._waiting.append(("close", (diagnosis,)))
                self._wake.notify()

    def stop(self) -> None:
        """Let the thread end without a Diagnosis; what waits is still handed over."""
        with self._wake:
            self._finishing = True
            self._waiting.append(("stop", ()))
            self._wake.notify()

    def ended(self, timeout: float) -> bool:
        """Whether the sink has taken everything, or failed, within `timeout` seconds."""
        return self._done.wait(timeout)

    def wait(self, deadline: float, journal: Path | None) -> None:
        if self.ended(max(0.0, deadline - time.monotonic())):
            return
        self._abandoned = True
        log.log(
            self._level,
            "%s did not take everything within %g s%s%s",
            _name(self.sink),
            self.close_timeout,
            f"; it is kept in {journal}" if journal is not None else "",
            _advice(self.sink),
        )

    def _probe(self) -> None:
        if self._bind is None:
            return
        try:
            if self._bind():
                self._bind = None
        except Exception as error:
            self._bind = None
            self._fail(error)

    def _work(self) -> None:
        try:
            while True:
                item = self._next()
                if item is None:
                    if self._idle is not None:
                        self._idle()
                    continue
                call, arguments = item
                if call == "stop":
                    return
                getattr(self.sink, call)(*arguments)
                if call == "close":
                    return
        except Exception as error:
            self._fail(error)
        finally:
            self._done.set()

    def _next(self) -> tuple[str, tuple[Any, ...]] | None:
        with self._wake:
            if not self._waiting:
                self._wake.wait(IDLE_SECONDS if self._idle is not None else None)
            return self._waiting.popleft() if self._waiting else None

    def _fail(self, error: Exception) -> None:
        with self._wake:
            self.error = error
            self._waiting.clear()
        if not self._abandoned:
            quiet = isinstance(error, Undelivered)
            log.log(
                self._level, "%s: %s%s", _name(self.sink), error, _advice(self.sink), exc_info=None if quiet else error
            )
        self._done.set()  # last, so that who waits finds it told


def _stop(lanes: list[Lane]) -> None:
    for lane in lanes:
        lane.stop()


class Undelivered(RuntimeError):
    """A sink raises this in `close` when its findings are kept elsewhere; the message says where."""


def _name(sink: Sink) -> str:
    return f"NeuralDBG's sink {type(sink).__name__}"


def _advice(sink: Sink) -> str:
    advice = getattr(sink, "advice", "")
    return f"; {advice}" if advice else ""


_open_fanouts: weakref.WeakSet[FanOut] = weakref.WeakSet()


def _after_fork() -> None:
    for fanout in list(_open_fanouts):
        fanout._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
