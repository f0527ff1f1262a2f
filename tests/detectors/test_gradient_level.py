from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import gradient_level
from neuraldbg.record import StepRecord
from neuraldbg.settings import make
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

found = partial(feed, gradient_level)


def norms(*values: float | None, first: int = 0, **more: Any) -> list[StepRecord]:
    return [record(first + k, gradient_norm=g, **more) for k, g in enumerate(values)]


def wavy(level: float, count: int) -> list[float]:
    """A level with the noise of small batches."""
    return [level * (1.0 + 0.4 * math.sin(2.3 * k)) for k in range(count)]


HEAD = wavy(1.0, 10)


# growth over the head


def test_growth_by_less_than_two_decades_is_training() -> None:
    assert found(norms(*HEAD, *wavy(60.0, 60))) == []


def test_a_gradient_that_falls_as_the_training_converges_is_healthy() -> None:
    assert found(norms(*[10 ** (-k / 20) for k in range(80)])) == []


def test_two_large_gradients_in_a_row_are_a_spike() -> None:
    assert found(norms(*HEAD, *([1e4, 1e4, 1.0, 1.2, 0.8] * 10))) == []


def test_steps_that_a_scaler_skips_do_not_count() -> None:
    assert found([*norms(*HEAD), *norms(*[1e30] * 10, first=10, skipped=True), *norms(*wavy(1.0, 20), first=20)]) == []


def test_a_high_but_steady_gradient_is_the_scale_of_the_loss() -> None:
    assert found(norms(*wavy(3e5, 80))) == []


def test_a_zero_or_unknown_norm_has_no_level() -> None:
    assert found(norms(*[0.0] * 20, *[None] * 5, *[math.inf] * 5)) == []


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_growth_by_decades_is_told_once_and_dated_from_where_it_left_the_first_decade(factor: float) -> None:
    rising = [10 ** (k / 5) for k in range(1, 30)]
    (event,) = found(norms(*[g * factor for g in [*HEAD, *rising]]))
    assert (event.symptom, event.layer_name) == ("exploding_gradient", None)
    assert event.step == 15
    assert event.metadata["growth_lg"] > 2.0


def test_the_gradients_direction_goes_with_the_growth() -> None:
    (event,) = found(norms(*HEAD, *[1e4] * 3, cosine=0.97))
    assert event.metadata["cosine"] == 0.97


def test_a_gradient_that_stays_one_decade_up_has_not_recovered_and_one_that_comes_back_has() -> None:
    up = [*HEAD, *[1e4] * 5]
    assert [e.is_recovery for e in found(norms(*up, *wavy(8.0, 15)))] == [False]
    grown, back = found(norms(*up, *wavy(1.0, 15)))
    assert back.is_recovery and back.from_state == grown.to_state and back.step == 15


# high and flat


def test_a_high_gradient_with_the_noise_of_batches_is_not_saturated() -> None:
    assert found(norms(*HEAD, *wavy(50.0, 60))) == []


def test_a_flat_gradient_less_than_a_decade_up_is_not_saturated() -> None:
    assert found(norms(*HEAD, *[9.0] * 60)) == []


def test_a_gradient_that_stays_high_and_flat_is_saturated_and_told_once() -> None:
    (event,) = found(norms(*[1.0] * 10, *[30.0] * 80))
    assert event.symptom == "saturated_gradient"
    assert event.metadata == {"rms": 30.0, "baseline": 1.0}


# the limits that the settings name

NET = facts(module("fc1", 0), parameters=(parameter("fc1.weight"),))


def layers(*gradients: float | None) -> list[StepRecord]:
    return [record(k, parameters={"fc1.weight": parameter_stats(g)}) for k, g in enumerate(gradients)]


def test_gradients_between_the_limits_are_within_them() -> None:
    assert found(layers(1.1e-6, 999.0), facts=NET) == []


def test_a_gradient_of_zero_or_none_is_another_matter() -> None:
    assert found(layers(0.0, None, math.nan), facts=NET) == []


@pytest.mark.parametrize(("gradient", "symptom"), [(1e-7, "vanishing_gradient"), (1e4, "exploding_gradient")])
def test_a_gradient_beyond_a_limit_is_seen_from_step_0_once_and_with_little_confidence(
    gradient: float, symptom: str
) -> None:
    (event,) = found(layers(gradient, gradient, gradient), facts=NET)
    assert (event.symptom, event.layer_name, event.step) == (symptom, "fc1", 0)
    assert event.metadata == {"rms": gradient, "absolute": True} and event.confidence < 0.5


def test_the_limits_are_settings() -> None:
    (event,) = found(layers(5e-3), facts=NET, settings=make(threshold_vanishing=1e-2))
    assert event.symptom == "vanishing_gradient"


def test_growth_just_beyond_two_decades_is_told() -> None:
    assert len(found(norms(*[1.0] * 10, *[120.0, 130.0, 140.0]))) == 1


@pytest.mark.parametrize(("size", "told"), [(0.06, 1), (0.11, 0)])
def test_flat_means_within_a_tenth_for_twenty_steps(size: float, told: int) -> None:
    high = [30.0 * (1 + size / 1.4826 * (1 if k % 2 else -1)) for k in range(20)]
    assert len(found(norms(*[1.0] * 10, *high))) == told
    assert found(norms(*[1.0] * 10, *high[:19])) == []
