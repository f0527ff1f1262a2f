from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import target_shift
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, loss_stats, record

found = partial(feed, target_shift)


def targets(*rms: float | None) -> list[StepRecord]:
    return [record(k, loss_stats=loss_stats(target_rms=v)) for k, v in enumerate(rms)]


def test_a_run_without_a_known_loss_has_no_targets() -> None:
    assert found([record(k) for k in range(30)]) == []


def test_class_labels_have_no_scale() -> None:
    assert found(targets(*[None] * 30)) == []


def test_small_batches_of_the_same_targets_differ_by_a_few_tens_of_percent() -> None:
    assert found(targets(*[1 + 0.2 * math.sin(2.3 * k) for k in range(60)])) == []


def test_just_within_a_factor_of_three_is_sampling() -> None:
    assert found(targets(*[1.0] * 20, *[2.9] * 20)) == []
    assert found(targets(*[1.0] * 20, *[0.35] * 20)) == []


def test_targets_that_a_model_makes_itself_may_grow_slowly() -> None:
    """Bootstrapped values: a hundredfold in all, four percent from one batch to the next."""
    assert found(targets(*[1.04**k for k in range(120)])) == []


def test_the_first_ten_batches_say_what_is_usual() -> None:
    assert found(targets(*[1.0] * 8, *[1000.0] * 20)) == []


def test_two_odd_batches_in_a_row_are_outliers() -> None:
    assert found(targets(*[1.0] * 20, *[1000.0, 1000.0, 1.0] * 10)) == []


def test_where_every_batch_has_its_own_scale_none_is_usual() -> None:
    assert found(targets(*[1.0, 5.0] * 10, *[500.0] * 3)) == []


def test_targets_that_are_zero_have_no_scale() -> None:
    assert found(targets(*[0.0] * 20, *[1.0] * 20)) == []


def test_a_step_with_anything_non_finite_is_left_out() -> None:
    bad = [record(20 + k, loss_stats=loss_stats(target_rms=1e3), first_bad=("input", None)) for k in range(10)]
    assert found([*targets(*[1.0] * 20), *bad]) == []


def test_another_unit_is_told_once_and_dated_from_its_first_batch() -> None:
    (event,) = found(targets(*[2.0] * 20, *[2000.0] * 20))
    assert (event.symptom, event.layer_name, event.step) == ("target_shift", None, 20)
    assert event.metadata == {"ratio": 1000.0, "before": 2.0, "after": 2000.0}


def test_it_is_seen_through_the_noise_of_small_batches() -> None:
    noisy = [1 + 0.2 * math.sin(2.3 * k) for k in range(20)]
    assert [e.step for e in found(targets(*noisy, *[20 * v for v in noisy]))] == [20]


def test_the_third_batch_after_the_first_ten_is_enough() -> None:
    assert found(targets(*[1.0] * 10, *[4.0] * 2)) == []
    assert [e.step for e in found(targets(*[1.0] * 10, *[4.0] * 3))] == [10]


@pytest.mark.parametrize("factor", [3.1, 0.3, 1e-6])
def test_a_smaller_unit_is_another_unit_too(factor: float) -> None:
    (event,) = found(targets(*[2.0] * 15, *[2.0 * factor] * 3))
    assert event.step == 15
    assert event.metadata["ratio"] == pytest.approx(factor)


def test_an_odd_batch_before_it_does_not_date_it() -> None:
    (event,) = found(targets(*[1.0] * 15, 1000.0, *[1.0] * 5, *[1000.0] * 3))
    assert event.step == 21


def test_batches_between_that_were_not_measured_do_not_hide_it() -> None:
    (event,) = found(targets(*[1.0] * 15, 1000.0, None, 1000.0, None, 1000.0))
    assert event.step == 15
