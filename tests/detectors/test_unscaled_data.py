from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import unscaled_data
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, input_stats, loss_stats, record

found = partial(feed, unscaled_data)


def batches(means: tuple[float, ...], stds: tuple[float, ...], count: int = 12, every: int = 1) -> list[StepRecord]:
    return [record(k * every, inputs=(input_stats(means, stds=stds),)) for k in range(count)]


@pytest.mark.parametrize(
    ("means", "stds"),
    [
        ((0.0, 0.0), (1.0, 1.0)),
        ((0.5, 0.5), (0.3, 0.3)),
        ((0.0, 0.0), (15.0, 0.5)),
        ((4.9, 4.9), (1.0, 1.0)),
        ((0.0, 0.0), (1e-3, 9.0)),
        ((100.0 / 256, 1.0), (0.0, 0.0)),
        ((0.0, 0.0), (0.0, 0.0)),
    ],
    ids=["standard", "pixels", "rms 15", "offset 4.9", "one tiny feature", "constants", "empty"],
)
def test_inputs_that_a_network_can_take_are_scaled(means: tuple[float, ...], stds: tuple[float, ...]) -> None:
    assert found(batches(means, stds)) == []


def test_bad_and_empty_batches_are_left_out() -> None:
    bad = [record(k, inputs=(input_stats((1e9,), nans=k % 2, zeros=k % 2 == 0),)) for k in range(30)]
    assert found(bad) == []


def test_inputs_that_grow_later_are_a_shift_and_no_matter_of_scale() -> None:
    assert (
        found([*batches((0.0,), (1.0,), 10), *[record(k, inputs=(input_stats((1e4,)),)) for k in range(10, 40)]]) == []
    )


def test_an_input_whose_features_change_in_number_is_not_judged_and_no_error() -> None:
    widths = [4, 5, 4, 6, 4, 4, 4, 4, 4, 4, 4, 4]
    assert found([record(k, inputs=(input_stats((0.0,) * n, stds=(1.0,) * n),)) for k, n in enumerate(widths)]) == []


def test_statistics_that_are_not_numbers_are_no_error() -> None:
    assert found([record(k, inputs=(input_stats((math.nan,), stds=(math.nan,)),)) for k in range(12)]) == []


@pytest.mark.parametrize(
    ("means", "stds", "what"),
    [
        ((0.0, 0.0), (1.0, 100.0), {"rms_lg": 2.0, "spread_lg": 2.0, "feature": 1}),
        ((6.0, 6.0), (1.0, 1.0), {"offset": 6.0, "spread_lg": 0.0}),
        ((0.0, 0.0), (12.0, 0.1), {"spread_lg": 2.0791812, "feature": 0}),
    ],
    ids=["large", "offset", "spread"],
)
def test_inputs_of_large_scale_offset_or_spread_are_told_once_and_at_once(
    means: tuple[float, ...], stds: tuple[float, ...], what: dict[str, Any]
) -> None:
    (event,) = found(batches(means, stds))
    assert (event.symptom, event.layer_name, event.step) == ("unscaled_input", None, 0)
    assert event.metadata["input"] == "x" and event.metadata["features"] == 2
    assert {k: event.metadata[k] for k in what} == pytest.approx(what)


@pytest.mark.parametrize("every", [1, 10])
def test_an_input_found_large_only_on_average_is_dated_from_its_first_batch(every: int) -> None:
    first = record(0, inputs=(input_stats((0.0,), stds=(10.0,)),))
    later = [record(k * every, inputs=(input_stats((0.0,), stds=(20.0,)),)) for k in range(1, 12)]
    (event,) = found([first, *later])
    assert event.step == 0


def test_an_offset_over_almost_no_deviation_is_told_as_a_number_or_not_at_all() -> None:
    (event,) = found(batches((1.0,), (5e-324,)))
    assert event.metadata["offset"] is None


# targets


def target(rms: float | None, first: int = 0) -> list[StepRecord]:
    return [record(first + k, loss_stats=loss_stats(target_rms=rms)) for k in range(12)]


def test_targets_of_up_to_a_hundred_are_within_reach() -> None:
    assert found(target(99.0)) == [] and found(target(None)) == [] and found(target(math.nan)) == []


def test_targets_that_grow_later_are_another_matter() -> None:
    assert found(target(1e6, first=10)) == []


def test_large_targets_are_told_once() -> None:
    (event,) = found(target(1e4))
    assert (event.symptom, event.step) == ("unscaled_target", 0)
    assert event.metadata["rms_lg"] == pytest.approx(4.0)
