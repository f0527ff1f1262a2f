from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import scale_collapse
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, loss_stats, module, parameter, record

NET = facts(
    module("body", 0),
    module("mean", 1, position="output"),
    module("raw", 2, position="output"),
    parameters=tuple(parameter(f"{n}.weight", rms=0.5) for n in ("body", "mean", "raw")),
)
found = partial(feed, scale_collapse, facts=NET)


def steps(
    norm: float,
    level: float,
    loss: float = -1.0,
    rms: float | None = None,
    hidden: float = 0.0,
    first: int = 0,
    **more: Any,
) -> list[StepRecord]:
    """Ten steps of the start, then five whose scale layer has this mean."""
    start = {n: layer_stats(mean=0.0) for n in ("body", "mean", "raw")}
    later = {**start, "body": layer_stats(mean=hidden), "raw": layer_stats(rms or abs(level) or 1.0, mean=level)}
    usual = [record(first + k, loss=0.5, gradient_norm=1.0, layers=start, **more) for k in range(10)]
    return usual + [record(first + k, loss=loss, gradient_norm=norm, layers=later, **more) for k in range(10, 15)]


def test_a_small_scale_with_a_gradient_fifty_times_as_large_is_a_good_fit() -> None:
    assert found(steps(99.0, -3.0)) == []


def test_a_loss_above_zero_is_no_density_without_a_bound() -> None:
    assert found(steps(200.0, -3.0, loss=0.1)) == []


def test_a_scale_that_fell_to_a_third_or_is_small_for_some_samples_only_has_not_collapsed() -> None:
    assert found(steps(200.0, -1.4)) == []
    assert found(steps(200.0, -3.0, rms=3.7)) == []


def test_a_hidden_layer_may_turn_negative() -> None:
    assert found(steps(200.0, 0.0, hidden=-5.0)) == []


def test_a_loss_whose_operator_is_known_has_a_lower_bound() -> None:
    assert found(steps(200.0, -3.0, loss_stats=loss_stats("mse"))) == []


@pytest.mark.parametrize("more", [{"sampled": False}, {"first_bad": ("loss", None)}])
def test_steps_without_usable_numbers_say_nothing(more: dict[str, Any]) -> None:
    assert found(steps(200.0, -3.0, **more)) == []


def test_a_scale_that_falls_while_the_gradient_grows_a_hundredfold_is_told_once_with_its_layer() -> None:
    (event,) = found(steps(200.0, -3.0))
    assert (event.symptom, event.layer_name, event.step) == ("scale_collapse", "raw", 10)
    assert (event.metadata["mean"], event.metadata["start"]) == (-3.0, 0.0)
    assert event.metadata["growth_lg"] == pytest.approx(2.301, abs=0.001)
