from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import target_outlier
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, loss_stats, record

found = partial(feed, target_outlier)


def outliers(*z: float | None) -> list[StepRecord]:
    return [record(k, loss_stats=loss_stats(outlier=v)) for k, v in enumerate(z)]


def targets(low: float | None, high: float | None, kind: str = "bce_with_logits") -> list[StepRecord]:
    return [record(k, loss_stats=loss_stats(kind, target_low=low, target_high=high)) for k in range(3)]


def test_a_run_without_a_known_loss_has_no_targets() -> None:
    assert found([record(k) for k in range(30)]) == []


def test_heavy_tails_are_no_outliers() -> None:
    assert found(outliers(*[5.0, 9.0, 20.0] * 20)) == []


def test_fifty_deviations_at_most_or_what_earlier_batches_came_near_is_usual() -> None:
    assert found(outliers(*[2.0] * 20, 50.0)) == []
    assert found(outliers(*[2.0] * 10, 40.0, *[2.0] * 10, 790.0)) == []


def test_the_first_ten_batches_say_what_is_usual() -> None:
    assert found(outliers(*[2.0] * 9, 1e6)) == []


def test_targets_most_of_which_are_equal_have_no_deviation_to_measure_by() -> None:
    """Ratings of one to five stars: in some batches over half of them are fives."""
    assert found(outliers(*[4.0] * 20, 4e12, *[4.0] * 20)) == []


def test_an_outlier_that_was_not_measured_is_no_error() -> None:
    assert found(outliers(*[2.0] * 10, None, math.nan, math.inf, 2.0)) == []


def test_a_target_far_outside_is_told_at_its_batch() -> None:
    (event,) = found(outliers(*[2.0] * 19, 3.0, 1e4, *[2.0] * 10))
    assert (event.symptom, event.layer_name, event.step) == ("target_outlier", None, 20)
    assert event.metadata == {"z": 1e4, "usual": 3.0}


def test_a_batch_of_equal_targets_among_the_first_does_not_blind() -> None:
    assert [e.step for e in found(outliers(2.0, 1e12, *[2.0] * 18, 1e4))] == [20]


def test_at_most_five_outliers_are_told() -> None:
    assert len(found(outliers(*[2.0] * 20, *[1e4] * 20))) == 5


# targets outside what the loss is defined on


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1e-7, 1.0 + 1e-7), (0.1, 0.9), (None, None)])
def test_targets_of_a_binary_loss_between_zero_and_one_are_as_they_should(
    low: float | None, high: float | None
) -> None:
    assert found(targets(low, high)) == []


def test_targets_of_another_loss_may_lie_anywhere() -> None:
    assert found(targets(-5.0, 99.0, kind="mse")) == []


@pytest.mark.parametrize(("low", "high"), [(0.0, 255.0), (-1.0, 1.0)])
def test_targets_that_a_binary_loss_is_not_made_for_are_told_once(low: float, high: float) -> None:
    (event,) = found(targets(low, high, kind="bce"))
    assert (event.symptom, event.layer_name, event.step) == ("target_range", None, 0)
    assert event.metadata == {"loss_kind": "bce", "target_low": low, "target_high": high}


def test_just_beyond_both_limits_after_ten_batches_it_is_told() -> None:
    assert len(found(outliers(*[2.0] * 10, 51.0))) == 1
    assert len(found(outliers(*[10.0] * 10, 201.0))) == 1
