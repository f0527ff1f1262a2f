from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from neuraldbg.detectors import input_shift
from neuraldbg.record import InputStats, StepRecord
from neuraldbg.testing import feed, input_stats, record

found = partial(feed, input_shift)


def batch(values: np.ndarray[Any, np.dtype[np.float64]], name: str = "x") -> InputStats:
    """What a batch [samples, features] of these values looks like."""
    flat = values.reshape(-1)
    far = flat[np.abs(flat).argmax()]
    return input_stats(
        tuple(values.mean(0)),
        name,
        stds=tuple(values.std(0)),
        rows=len(values),
        far=abs(float(far)),
        far_value=float(far),
        far_repeats=int((flat == far).sum()),
        zeros=not flat.any(),
    )


def stream(count: int, seed: int = 0, shift: float = 0.0, scale: float = 1.0, features: int = 5) -> list[InputStats]:
    rng = np.random.default_rng(seed)
    return [batch(rng.normal(size=(32, features)) * scale + shift) for _ in range(count)]


def steps(*batches: InputStats, first: int = 0) -> list[StepRecord]:
    return [record(first + k, inputs=(x,)) for k, x in enumerate(batches)]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_sampling_noise_is_no_shift(size: float) -> None:
    assert found(steps(*stream(200, scale=size))) == []


def test_a_shift_by_less_than_a_deviation_does_not_matter() -> None:
    assert found(steps(*stream(15), *stream(50, seed=1, shift=0.7))) == []


def test_one_odd_batch_and_two_are_no_new_distribution() -> None:
    odd, usual = stream(2, seed=2, shift=8.0), stream(20, seed=3)
    assert found(steps(*stream(15), odd[0], *usual, odd[0], odd[1], *usual)) == []


def test_a_spread_twice_as_wide_is_within_what_batches_do() -> None:
    assert found(steps(*stream(15), *stream(50, seed=1, scale=2.0))) == []


def test_a_rare_value_of_a_feature_that_was_constant_so_far_is_no_shift() -> None:
    """The border of handwritten digits: pixels that one image in a thousand touches."""
    rng = np.random.default_rng(0)
    chance = np.concatenate([np.full(40, 5e-4), np.full(200, 0.3)])
    batches = [batch((rng.random((64, 240)) < chance) * rng.uniform(0.1, 1.0, (64, 240))) for _ in range(400)]
    assert found(steps(*batches)) == []


def test_a_constant_feature_that_moves_by_what_others_spread_is_a_shift() -> None:
    usual = [input_stats((0.0, k * 0.01), stds=(0.0, 1.0)) for k in range(15)]
    moved = [input_stats((4.0, 0.0), stds=(0.0, 1.0)) for _ in range(5)]
    (event,) = found(steps(*usual, *moved))
    assert event.metadata["feature"] == 0


def test_another_kind_of_input_under_the_same_name_is_left_out() -> None:
    assert found(steps(*stream(15), *stream(20, seed=1, shift=50.0, features=6))) == []
    assert found(steps(*stream(3), *stream(3, seed=1, features=7), *stream(40, seed=2))) == []


def test_the_spread_of_a_handful_of_samples_says_nothing() -> None:
    rng = np.random.default_rng(0)
    assert found(steps(*[batch(rng.normal(size=(4, 12))) for _ in range(400)])) == []


def test_batches_of_one_sample_and_inputs_without_features_are_no_error() -> None:
    rng = np.random.default_rng(0)
    assert found(steps(*[batch(rng.normal(size=(1, 4))) for _ in range(60)])) == []
    assert found(steps(*[input_stats(()) for _ in range(40)])) == []


def test_moments_that_overflowed_are_no_error_and_a_far_value_among_them_is_told() -> None:
    huge = input_stats((0.0,) * 5, stds=(np.inf,) * 5, far=3.4e38, far_value=-3.4e38, far_repeats=3)
    overflowed = input_stats((np.nan,) * 5, stds=(np.inf,) * 5)
    assert found(steps(*[overflowed] * 9, *stream(30))) == []
    assert [e.symptom for e in found(steps(*stream(20), *[overflowed] * 5, huge))] == ["input_sentinel"]


def test_bad_and_empty_batches_teach_nothing() -> None:
    bad = [input_stats(nans=3), input_stats(infs=1), input_stats(zeros=True, far=0.0)] * 10
    assert found(steps(*bad, *stream(60))) == []


def test_the_first_fifteen_batches_are_the_baseline_whatever_is_in_them() -> None:
    assert found(steps(*stream(8), *stream(60, seed=2, shift=9.0))) == []
    (event,) = found(steps(*stream(15), *stream(60, seed=2, shift=9.0)))
    assert event.step == 15


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_shift_is_told_once_and_dated_from_its_first_batch(size: float) -> None:
    (event,) = found(steps(*stream(30, scale=size), *stream(40, seed=1, scale=size, shift=8.0 * size)))
    assert (event.symptom, event.layer_name, event.step) == ("input_shift", None, 30)
    assert event.metadata["input"] == "x" and event.metadata["z"] > 15
    assert event.metadata["decades"] < 2


def test_a_shift_of_one_feature_names_it() -> None:
    moved = [input_stats((0.0, 0.0, 6.0)) for _ in range(5)]
    (event,) = found(steps(*[input_stats((0.01 * k, 0.0, 0.0)) for k in range(15)], *moved))
    assert event.metadata["feature"] == 2
    assert event.metadata["spreads"] == pytest.approx(6.0)


@pytest.mark.parametrize("scale", [5.0, 0.2])
def test_a_change_of_scale_is_a_shift(scale: float) -> None:
    (event,) = found(steps(*stream(20), *stream(20, seed=1, scale=scale)))
    assert (event.symptom, event.step) == ("input_shift", 20)
    assert event.metadata["scale"] == pytest.approx(scale, rel=0.5)


# far values


def far(value: float, repeats: int) -> InputStats:
    return input_stats((0.0,) * 5, far=abs(value), far_value=value, far_repeats=repeats)


def test_a_value_within_two_decades_of_the_usual_is_an_outlier_of_the_data() -> None:
    assert found(steps(*stream(15), far(200.0, 5), *stream(10, seed=1))) == []


def test_one_far_value_is_a_shift_and_several_equal_ones_are_a_code_for_missing_values() -> None:
    one, code = found(steps(*stream(15), far(-9999.0, 1), far(-9999.0, 4)))
    assert (one.symptom, code.symptom) == ("input_shift", "input_sentinel")
    assert (code.step, code.metadata["value"], code.metadata["repeats"]) == (16, -9999.0, 4)
    assert code.metadata["decades"] == pytest.approx(3.5, abs=0.3)


def test_at_most_twenty_far_batches_are_told() -> None:
    assert len(found(steps(*stream(15), *[far(-9999.0, 4)] * 50))) == 20


def constant(*means: float) -> list[StepRecord]:
    """A feature of deviation 0.1 whose batch means are exactly 0 for the baseline, then these."""
    return steps(*[input_stats((m,), stds=(0.1,)) for m in (*[0.0] * 15, *means)])


def test_three_batches_just_beyond_a_deviation_are_a_shift() -> None:
    assert found(constant(*[0.09] * 9)) == []
    (event,) = found(constant(*[0.11] * 3))
    assert event.metadata["z"] == pytest.approx(0.11 / 0.002)  # over 2 % of the spread


@pytest.mark.parametrize(("mean", "told"), [(0.9, 0), (1.1, 1)])
def test_a_shift_is_fifteen_times_the_noise_of_the_baselines_means(mean: float, told: int) -> None:
    usual = [input_stats((0.068 * (-1) ** k,), stds=(0.1,)) for k in range(15)]
    assert len(found(steps(*usual, *[input_stats((mean,), stds=(0.1,))] * 3))) == told


@pytest.mark.parametrize(("scale", "told"), [(2.9, 0), (3.1, 1)])
def test_a_threefold_spread_is_a_shift(scale: float, told: int) -> None:
    wider = [input_stats((0.0,), stds=(scale,))] * 3
    assert len(found(steps(*[input_stats((0.0,))] * 15, *wider))) == told


def test_a_value_just_beyond_two_decades_is_far() -> None:
    usual = [input_stats((0.0,) * 5, far=3.0)] * 15
    assert found(steps(*usual, far(299.0, 1))) == []
    assert len(found(steps(*usual, far(301.0, 1)))) == 1
