from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import activation_growth
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

found = partial(feed, activation_growth, facts=facts(module("fc1", 0), module("fc2", 1)))


def sizes(*highs: float, name: str = "fc1", first: int = 0) -> list[StepRecord]:
    return [
        record(first + k, layers={name: layer_stats(high / 3, low=-high, high=high)}) for k, high in enumerate(highs)
    ]


USUAL = [2.0] * 10


def test_growth_by_less_than_three_decades_is_training() -> None:
    assert found(sizes(*USUAL, *[1900.0] * 20)) == []


def test_one_large_batch_is_no_growth() -> None:
    assert found(sizes(*USUAL, 1e6, 2.0, 1e6, 2.0)) == []


def test_a_layer_that_starts_at_zero_has_no_size_to_grow_from() -> None:
    assert found(sizes(*[0.0] * 10, *[5.0] * 20)) == []


def test_a_mask_of_minus_infinity_is_no_size() -> None:
    masked = [record(10 + k, layers={"fc1": layer_stats(math.inf, low=-math.inf, high=2.0)}) for k in range(10)]
    assert found([*sizes(*USUAL), *masked]) == []


def test_a_step_with_something_non_finite_is_left_out() -> None:
    bad = [record(10 + k, layers={"fc1": layer_stats(1e9)}, first_bad=("forward", "fc1")) for k in range(5)]
    assert found([*sizes(*USUAL), *bad]) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_growth_by_over_three_decades_is_told_once_with_the_step_where_it_began(sign: int) -> None:
    high = [
        record(10 + k, layers={"fc1": layer_stats(1e4, low=min(0, sign) * 2e4, high=max(0, sign) * 2e4)})
        for k in range(9)
    ]
    (event,) = found([*sizes(*USUAL), *high])
    assert (event.symptom, event.layer_name, event.step) == ("activation_growth", "fc1", 10)
    assert event.metadata["growth_lg"] == pytest.approx(4.0)


def test_of_two_layers_that_grow_in_one_step_the_first_in_forward_order_is_named() -> None:
    both = [record(k, layers={n: layer_stats(1.0 if k < 10 else 1e5) for n in ("fc2", "fc1")}) for k in range(15)]
    (event,) = found(both)
    assert event.layer_name == "fc1"


def test_two_samples_beyond_the_limit_are_enough() -> None:
    assert len(found(sizes(*USUAL, 2100.0, 2100.0))) == 1
