from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import rate_jump
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, record

found = partial(feed, rate_jump)


def rates(*values: float, more: tuple[float, ...] = ()) -> list[StepRecord]:
    return [record(k, rates=(v, *more)) for k, v in enumerate(values)]


@pytest.mark.parametrize(
    "schedule",
    [
        [0.1] * 100,
        [0.1] * 50 + [0.01] * 50 + [0.001] * 50,
        [0.1 * k / 20 for k in range(20)] + [0.1] * 20,
        [1e-6 * 2**k for k in range(17)],
        [0.05 * (1 + math.cos(math.pi * (k % 30) / 30)) for k in range(120)],
        [0.0] * 20 + [0.1] * 20,
        [1e-4] * 20 + [4.9e-4] * 20,
    ],
    ids=["constant", "steps down", "warm-up from zero", "doubling", "warm restarts", "switched on", "fivefold"],
)
def test_usual_schedules_do_not_jump(schedule: list[float]) -> None:
    assert found(rates(*schedule)) == []


def test_a_rate_that_changes_in_the_first_five_steps_is_being_set() -> None:
    assert found(rates(*[1e-3] * 4, *[0.1] * 10)) == []


def test_optimizers_that_come_and_go_are_no_jump() -> None:
    assert (
        found([*rates(*[1e-3] * 10), record(10, rates=(1e-3, 1.0)), record(11, rates=()), record(12, rates=(1.0,))])
        == []
    )


def test_a_rate_that_is_not_a_number_is_no_error() -> None:
    assert found(rates(*[1e-3] * 10, math.nan, 1e-3)) == []


def test_a_jump_is_told_at_its_step_with_what_it_left() -> None:
    (event,) = found(rates(*[1e-3] * 20, *[0.1] * 20))
    assert (event.symptom, event.layer_name, event.step) == ("rate_jump", None, 20)
    assert (event.metadata["before"], event.metadata["after"]) == (1e-3, 0.1)
    assert event.metadata["decades"] == pytest.approx(2.0)


def test_a_jump_of_the_second_group_counts_and_two_in_one_step_are_one() -> None:
    (event,) = found([record(k, rates=(1e-3, 1e-4 if k < 9 else 1.0)) for k in range(20)])
    assert (event.step, event.metadata["before"]) == (9, 1e-4)
    assert len(found([record(k, rates=(1e-3, 1e-3) if k < 9 else (1.0, 1.0)) for k in range(20)])) == 1


def test_a_jump_above_what_a_cycle_reached_is_a_jump() -> None:
    cycle = [0.05 * (1 + math.cos(math.pi * (k % 30) / 30)) for k in range(60)]
    (event,) = found(rates(*cycle, 1.0))
    assert event.step == 60 and event.metadata["before"] == pytest.approx(0.1)


def test_at_most_five_jumps_are_told() -> None:
    assert len(found(rates(*[v for k in range(10) for v in [1e-9 * 10.0**k] * 6]))) == 5


def test_the_sixth_step_may_jump_and_just_beyond_fivefold_it_does() -> None:
    assert len(found(rates(*[1e-3] * 5, 5.2e-3))) == 1
