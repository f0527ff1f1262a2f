"""The trace: events stay bounded without losing what came first, series are thinned in the middle only."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest

from neuraldbg.events import observed
from neuraldbg.record import LossStats, ParameterStats, RunFacts, StepRecord
from neuraldbg.settings import make
from neuraldbg.testing import parameter
from neuraldbg.trace import HEAD, POINTS, TAIL, EventLog, Trace, skill_of


class Chatty(NamedTuple):
    """A detector that reports each step, of one of some layers."""

    layers: int = 1
    name: str = "chatty"

    def initial(self, settings):
        return 0

    def step(self, state, record, facts):
        return state + 1, [observed("loss_spike", record.step, f"layer{state % self.layers}", 0.5)]


def fed(steps, detectors=(), settings=None, value=float):
    trace = Trace(settings or make(), detectors)
    for step in range(steps):
        trace.feed(StepRecord(step, loss=value(step)), RunFacts())
    return trace


# -- events -----------------------------------------------------------------------------------------------------------


def test_a_log_that_is_short_enough_is_left_alone():
    log = EventLog(observed("loss_spike", s) for s in range(10))
    before = list(log)
    assert log.prune(10) == 0
    assert log == before


def test_of_equal_events_the_first_and_the_most_recent_stay():
    log = EventLog(observed("loss_spike", s) for s in range(100))
    assert log.prune(10) == 90
    assert [e.step for e in log] == [0, *range(91, 100)]


def test_of_events_of_one_time_the_confident_stay():
    sure = {20, 21, 22}
    log = EventLog(observed("loss_spike", s, confidence=1.0 if s in sure else 0.1) for s in range(60))
    log.prune(6)
    assert {0, *sure} <= {e.step for e in log}


def test_first_occurrences_stay_though_they_are_more_than_allowed():
    log = EventLog(observed("dead_units", s, f"layer{s % 30}") for s in range(90))
    log.prune(10)
    assert [(e.step, e.layer_name) for e in log] == [(s, f"layer{s}") for s in range(30)]


def test_a_recovery_is_no_repetition_of_its_failure():
    from neuraldbg.events import recovered

    fall = observed("dead_units", 1, "a")
    log = EventLog([fall, recovered(fall, 5), *(observed("dead_units", s, "a") for s in range(10, 40))])
    log.prune(3)
    assert [e.step for e in log] == [1, 5, 39]


def test_what_stays_is_in_the_order_in_which_it_was_seen():
    log = EventLog(observed(("loss_spike", "rate_jump")[s % 2], s, confidence=(s * 7 % 10) / 10) for s in range(50))
    log.prune(12)
    assert [e.step for e in log] == sorted(e.step for e in log)


def test_a_long_run_keeps_a_bounded_number_of_events_and_counts_what_it_let_go():
    trace = fed(5000, [Chatty()], make(max_events=100))
    assert len(trace.events) <= 125
    assert len(trace.events) + trace.dropped == 5000
    assert trace.events[0].step == 0
    run = trace.run(True, RunFacts())
    assert len(run.events) == 100
    assert run.events[-1].step == 4999


def test_asking_for_the_run_does_not_change_the_trace():
    trace = fed(300, [Chatty(3)], make(max_events=10))
    before = list(trace.events)
    trace.run(False, RunFacts())
    assert trace.events == before


# -- series -----------------------------------------------------------------------------------------------------------


def test_a_short_series_is_whole():
    trace = fed(POINTS)
    assert trace.points["loss"] == [(s, float(s)) for s in range(POINTS)]


@pytest.mark.parametrize("steps", [POINTS + 1, 5000, 20000])
def test_a_long_series_is_bounded_with_head_and_tail_whole(steps):
    points = fed(steps).points["loss"]
    assert len(points) <= POINTS
    assert [s for s, _ in points[:HEAD]] == list(range(HEAD))
    assert [s for s, _ in points[-TAIL:]] == list(range(steps - TAIL, steps))
    assert all(value == step for step, value in points)
    gaps = [b - a for (a, _), (b, _) in pairwise(points)]
    assert min(gaps) > 0


def test_numbers_that_are_missing_or_not_finite_are_no_points():
    values = {0: None, 1: float("nan"), 2: float("inf"), 3: 1.0}
    trace = fed(4, value=values.get)
    assert trace.points == {"loss": [(3, 1.0)]}
    assert trace.steps == 4


def test_updates_are_the_median_over_weight_tensors():
    trace = Trace(make(), [])
    facts = RunFacts(
        parameters=(
            *(parameter(f"w{k}.weight", rms=1.0) for k in range(3)),
            parameter("bias", dims=1, rms=1.0),
            parameter("zero", rms=0.0),
            parameter("small", numel=4, rms=1.0),
        )
    )
    stats = {
        n: ParameterStats(update=u) for n, u in zip(["w0.weight", "w1.weight", "w2.weight"], [1, 2, 9], strict=True)
    }
    stats |= {n: ParameterStats(update=100.0) for n in ("bias", "zero", "small")}
    trace.feed(StepRecord(0, parameters=stats, rates=(0.1, 0.3), gradient_norm=2.0, cosine=0.5), facts)
    assert trace.points == {"rate": [(0, 0.3)], "gradient_norm": [(0, 2.0)], "cosine": [(0, 0.5)], "update": [(0, 2.0)]}


def test_skill_is_the_loss_over_that_of_a_constant_prediction():
    assert skill_of(LossStats("mse", value=0.5, chance=2.0)) == 0.25
    for stats in (None, LossStats("mse"), LossStats("mse", value=1.0), LossStats("mse", value=1.0, chance=0.0)):
        assert skill_of(stats) is None


def test_each_event_is_told_to_a_listener_once():
    told = []
    trace = Trace(make(), [Chatty()])
    trace.listener = told.append
    for step in range(5):
        trace.feed(StepRecord(step), RunFacts())
    assert told == list(trace.events)
