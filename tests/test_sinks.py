"""The fan-out never holds up the training, and one bad sink never takes another with it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuraldbg import journal, sinks
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts
from neuraldbg.sinks import FanOut, Memory, Undelivered

FACTS = RunFacts(models=("Net",))
SPIKE = observed("loss_spike", 4)
FINAL = Diagnosis(Verdict.FAILED, 0.9, events=(SPIKE,), steps=9)


class Broken(Memory):
    def event(self, event: SemanticEvent) -> None:
        raise OSError("disk on fire")


class Hung(Memory):
    close_timeout = 0.2
    advice = "type this"

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def open(self, facts: RunFacts) -> None:
        self.release.wait(30)


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)


@pytest.fixture(name="hung")
def _hung() -> Iterator[Hung]:
    sink = Hung()
    yield sink
    sink.release.set()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "neuraldbg"]


def run(*given: sinks.Sink, journal_path: Path | None = None, events: int = 1) -> None:
    fanout = FanOut(given, journal_path=journal_path)
    fanout.open(FACTS)
    for _ in range(events):
        fanout.event(SPIKE)
    fanout.points(3, {"loss": 1.0})
    fanout.facts(FACTS)
    fanout.close(FINAL)


def test_without_sinks_nothing_happens_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    run()
    assert threading.active_count() == before
    assert told(caplog) == []


def test_every_sink_gets_everything_in_order(tmp_path: Path) -> None:
    one, two = Memory(), Memory()
    run(one, two, journal_path=tmp_path / "j.jsonl")
    for sink in (one, two):
        assert (sink.opened, sink.events, sink.updates, sink.diagnosis) == (FACTS, [SPIKE], [FACTS], FINAL)
        assert sink.series == {"loss": [(3, 1.0)]}
    assert journal.read(tmp_path / "j.jsonl").diagnosis == FINAL


def test_a_sink_that_raises_is_told_once_and_the_others_and_the_journal_get_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = Memory()
    run(Broken(), good, journal_path=tmp_path / "j.jsonl", events=50)
    assert len(told(caplog)) == 1
    assert "Broken: disk on fire" in told(caplog)[0]
    assert len(good.events) == 50
    assert len(journal.read(tmp_path / "j.jsonl").events) == 50


def test_the_strict_switch_raises_a_sinks_error_when_the_session_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURALDBG_STRICT", "1")
    with pytest.raises(OSError, match="disk on fire"):
        run(Broken())


def test_a_hung_sink_holds_up_no_call_and_closing_gives_up_with_one_warning(
    hung: Hung, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = Memory()
    start = time.monotonic()
    run(hung, good, journal_path=tmp_path / "j.jsonl", events=200)
    assert time.monotonic() - start < 2.0
    assert told(caplog) == [
        f"NeuralDBG's sink Hung did not take everything within 0.2 s; it is kept in {tmp_path / 'j.jsonl'}; type this"
    ]
    assert good.diagnosis == FINAL
    assert journal.read(tmp_path / "j.jsonl").diagnosis == FINAL


def test_what_a_hung_sink_raises_after_it_was_given_up_is_not_told_again(
    hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    hung.event = Broken().event  # type: ignore[method-assign]
    fanout = FanOut([hung])
    fanout.open(FACTS)
    fanout.event(SPIKE)
    fanout.close(FINAL)
    hung.release.set()
    lane = fanout._lanes[0]
    assert lane._done.wait(5)
    assert isinstance(lane.error, OSError)
    assert len(told(caplog)) == 1


def test_a_full_queue_drops_and_says_so_once_but_the_diagnosis_arrives(caplog: pytest.LogCaptureFixture) -> None:
    slow = Hung()
    slow.close_timeout = 5.0
    fanout = FanOut([slow], capacity=10)
    fanout.open(FACTS)
    for _ in range(100):
        fanout.event(SPIKE)
    slow.release.set()
    fanout.close(FINAL)
    assert 9 <= len(slow.events) < 100
    assert slow.diagnosis == FINAL
    assert len(told(caplog)) == 1
    assert "too slow" in told(caplog)[0]


def test_closing_twice_is_closing_once() -> None:
    sink = Memory()
    fanout = FanOut([sink])
    fanout.close(FINAL)
    sink.diagnosis = None
    fanout.close(FINAL)
    assert sink.diagnosis is None


def test_bind_is_asked_on_the_calling_thread_until_it_says_yes() -> None:
    threads: list[int] = []

    class Binding(Memory):
        def bind(self) -> bool:
            threads.append(threading.get_ident())
            return len(threads) == 3

    run(Binding(), events=20)
    assert threads == [threading.get_ident()] * 3


def test_idle_is_called_while_nothing_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "IDLE_SECONDS", 0.01)
    called = threading.Event()

    class Idle(Memory):
        def idle(self) -> None:
            called.set()

    fanout = FanOut([Idle()])
    assert called.wait(5)
    fanout.close(FINAL)


def test_findings_kept_elsewhere_are_told_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Spooled(Memory):
        def close(self, diagnosis: Diagnosis) -> None:
            raise Undelivered("kept in /there")

    run(Spooled())
    (record,) = [r for r in caplog.records if r.name == "neuraldbg"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "NeuralDBG's sink Spooled: kept in /there"
    assert record.exc_info is None


def test_a_session_dropped_without_closing_leaves_no_thread() -> None:
    fanout = FanOut([Memory()])
    lane = fanout._lanes[0]
    del fanout
    assert lane._done.wait(5)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_tells_nothing_and_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    fanout = FanOut([], journal_path=path)
    fanout.open(FACTS)
    child = os.fork()
    if child == 0:
        fanout.event(SPIKE)
        fanout.close(FINAL)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    fanout.close(Diagnosis(Verdict.HEALTHY, 0.0))
    reading = journal.read(path)
    assert reading.events == ()
    assert reading.diagnosis == Diagnosis(Verdict.HEALTHY, 0.0)


def test_a_factory_gives_each_session_a_sink_until_it_is_removed() -> None:
    def factory() -> Memory:
        return Memory()

    sinks.add_factory(factory)
    sinks.add_factory(factory)
    try:
        first = sinks.from_factories()
        assert [type(s) for s in first] == [Memory]
        assert sinks.from_factories()[0] is not first[0]
    finally:
        sinks.remove_factory(factory)
        sinks.remove_factory(factory)
    assert sinks.from_factories() == []


def test_a_factory_that_fails_or_declines_costs_the_session_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Memory:
        raise OSError("no store")

    def declining() -> None:
        return None

    sinks.add_factory(failing)
    sinks.add_factory(declining)
    try:
        assert sinks.from_factories() == []
    finally:
        sinks.remove_factory(failing)
        sinks.remove_factory(declining)
    assert len(told(caplog)) == 1
