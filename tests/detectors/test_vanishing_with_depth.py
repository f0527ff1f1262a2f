from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import vanishing_with_depth
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

NAMES = [f"fc{k}" for k in range(6)]
NET = facts(
    *[module(n, 2 * k, position="output" if n == "fc5" else "hidden") for k, n in enumerate(NAMES)],
    *[module(f"act{k}", 2 * k + 1, "sigmoid") for k in range(5)],
    parameters=tuple(parameter(f"{n}.weight") for n in NAMES),
)
found = partial(feed, vanishing_with_depth, facts=NET)


def slopes(*per_layer: float, scale: float = 1.0, names: list[str] = NAMES, **more: Any) -> list[StepRecord]:
    """At each step, gradients that grow from the first layer to the last by this many decades a layer."""
    return [
        record(
            k,
            parameters={f"{n}.weight": parameter_stats(scale * 10 ** (s * i)) for i, n in enumerate(names)},
            **more,
        )
        for k, s in enumerate(per_layer)
    ]


def test_a_fall_of_less_than_three_decades_is_healthy() -> None:
    assert found(slopes(*[0.59] * 40)) == []


def test_gradients_that_grow_towards_the_first_layer_do_not_vanish() -> None:
    assert found(slopes(*[-1.0] * 40)) == []


def test_three_layers_have_no_depth() -> None:
    shallow = facts(*[module(n, k) for k, n in enumerate(NAMES[:3])], parameters=NET.parameters[:3])
    assert found(slopes(*[2.0] * 40, names=NAMES[:3]), facts=shallow) == []


def test_one_layer_that_swallows_the_gradient_is_no_slope() -> None:
    """A norm or a dead layer in front of the first: a step down, flat before and after."""
    names = [f"fc{k}" for k in range(20)]
    net = facts(*[module(n, k) for k, n in enumerate(names)], parameters=tuple(parameter(f"{n}.weight") for n in names))
    step = {f"{n}.weight": parameter_stats(10**-3.5 if k == 0 else 1.0) for k, n in enumerate(names)}
    assert found([record(k, parameters=step) for k in range(40)], facts=net) == []


def test_two_samples_of_five_are_a_fluctuation() -> None:
    assert found(slopes(*[0.8, 0.8, 0.2, 0.2, 0.2] * 10)) == []


def test_gradients_of_zero_or_none_have_no_size() -> None:
    nothing = {f"{n}.weight": parameter_stats(None if k % 2 else 0.0) for k, n in enumerate(NAMES)}
    assert found([record(k, parameters=nothing) for k in range(20)]) == []


def test_steps_without_backward_or_with_a_bad_value_are_left_out() -> None:
    assert found(slopes(*[1.0] * 20, backwards=0)) == []
    assert found(slopes(*[1.0] * 20, first_bad=("loss", None))) == []


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_gradient_that_shrinks_from_layer_to_layer_is_told_once_in_the_first_layer(scale: float) -> None:
    (event,) = found(slopes(*[0.2] * 7, *[0.8] * 20, scale=scale))
    assert (event.symptom, event.layer_name, event.step) == ("vanishing_with_depth", "fc0", 7)
    assert event.metadata["slope"] == pytest.approx(0.8) and event.metadata["first_last_lg"] == pytest.approx(-4.0)
    assert (event.metadata["layers"], event.metadata["bounded_layers"]) == (6, 5)


def test_a_fluctuation_long_ago_does_not_date_it() -> None:
    (event,) = found(slopes(0.8, *[0.2] * 20, *[0.8] * 5))
    assert event.step == 21


@pytest.mark.parametrize(("slope", "told"), [(0.28, 0), (0.35, 1)])
def test_the_slope_is_judged_beside_the_ratio(slope: float, told: int) -> None:
    names = [f"fc{k}" for k in range(12)]
    net = facts(*[module(n, k) for k, n in enumerate(names)], parameters=tuple(parameter(f"{n}.weight") for n in names))
    assert len(found(slopes(*[slope] * 3, names=names), facts=net)) == told


def test_four_layers_and_three_samples_of_five_are_enough() -> None:
    deep = facts(*[module(n, k) for k, n in enumerate(NAMES[:4])], parameters=NET.parameters[:4])
    assert len(found(slopes(1.1, 0.2, 1.1, 0.2, 1.1, names=NAMES[:4]), facts=deep)) == 1
