from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import function_growth
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

NET = facts(module("fc", 0), module("f", 1, kind="Exp", parameters=0))
found = partial(feed, function_growth, facts=NET)


def passes(step: int = 0, low: float = -40.0, rms: float = 2.0, **more: Any) -> StepRecord:
    """A function that takes values of rms 1 and at most 3."""
    given = {"low": low, "high": 0.0, "inputs_high": 3.0, **more}
    return record(step, layers={"fc": layer_stats(), "f": layer_stats(rms, **given)})


def test_a_rectifier_passes_on_what_it_gets() -> None:
    assert found([passes(low=-3.0, rms=0.7)]) == []


def test_a_squared_rectifier_grows_the_largest_value_by_half_a_decade() -> None:
    assert found([passes(low=-9.0, rms=1.2)]) == []


def test_a_function_that_only_scales_grows_large_and_small_values_alike() -> None:
    assert found([passes(low=-300.0, rms=100.0)]) == []


def test_a_bounded_function_of_tiny_values_grows_them_to_its_middle() -> None:
    net = facts(module("fc", 0), module("f", 1, "sigmoid"))
    assert found([passes(low=-0.9, rms=0.1, inputs_high=1e-4, inputs_rms=1e-4)], facts=net) == []


def test_a_norm_brings_any_size_to_one() -> None:
    net = facts(module("fc", 0), module("f", 1, kind="LayerNorm", parameters=0, norm_over=64))
    assert found([passes(low=-4.0, rms=1.0, inputs_high=0.01, inputs_rms=0.01)], facts=net) == []


def test_weights_may_grow_a_signal_by_their_own_cause() -> None:
    net = facts(module("fc", 0), module("f", 1))
    assert found([passes()], facts=net) == []


def test_a_spectrogram_of_raw_data_may_have_peaks() -> None:
    net = facts(module("f", 0, kind="Spectrogram", parameters=0), module("fc", 1))
    assert found([passes()], facts=net) == []


@pytest.mark.parametrize(
    "more", [{"inputs_high": None}, {"inputs_rms": None}, {"inputs_finite": False}, {"finite": False, "low": math.nan}]
)
def test_what_is_not_known_or_not_finite_is_not_judged(more: dict[str, Any]) -> None:
    assert found([passes(**more)]) == []


def test_values_below_the_smallest_normal_number_are_no_error() -> None:
    assert found([passes(low=-5e-324, rms=5e-324, inputs_high=5e-324, inputs_rms=1.0)]) == []


def test_a_power_that_grows_large_values_most_is_told_once() -> None:
    (event,) = found([passes(4, low=-3.0, rms=0.7), passes(5, low=-40.0), passes(6, low=-80.0)])
    assert (event.symptom, event.layer_name, event.step) == ("function_growth", "f", 5)
    assert event.metadata["gain_lg"] == pytest.approx(math.log10(40 / 3))
    assert (event.metadata["largest"], event.metadata["kind"]) == (40.0, "Exp")


STACK = facts(*[module(f"fc{k}", k) for k in range(4)])


def called(*highs: float, step: int = 0, rms: float = 1.2) -> StepRecord:
    """Layers that give values of rms 1 and at most 3; each next one gets values of at most so much."""
    given = [3.0, *highs]
    return record(step, layers={f"fc{k}": layer_stats(inputs_high=h, inputs_rms=rms) for k, h in enumerate(given)})


@pytest.mark.parametrize("highs", [(3.0, 3.0, 3.0), (9.0, 9.0, 9.0), (60.0, 3.0, 3.0)], ids=["relu", "squared", "once"])
def test_usual_functions_between_layers_and_one_joined_input_are_fine(highs: tuple[float, ...]) -> None:
    assert found([called(*highs)], facts=STACK) == []


def test_larger_inputs_of_the_same_shape_are_sums() -> None:
    assert found([called(60.0, 600.0, 6000.0, rms=400.0)], facts=STACK) == []


def test_a_residual_stream_has_other_reasons_to_grow() -> None:
    stream = facts(*STACK.modules, structure=("residual",))
    assert found([called(60.0, 60.0, 60.0)], facts=stream) == []


def test_a_power_that_is_called_between_layers_is_told_of_the_layer_before_it() -> None:
    (event,) = found([called(60.0, 60.0, 60.0), called(60.0, 60.0, 60.0, step=1)], facts=STACK)
    assert (event.symptom, event.layer_name, event.step) == ("function_growth", "fc0", 0)
    assert event.metadata["gain_lg"] == pytest.approx(math.log10(20)) and event.metadata["kind"] == "function"
    assert event.metadata["largest"] == pytest.approx(60.0)


def test_a_step_of_which_only_the_gradient_is_not_finite_is_looked_at() -> None:
    steep = passes(rms=4.0)
    assert found([dataclasses.replace(steep, first_bad=("activation", "f"))]) == []
    assert found([dataclasses.replace(steep, first_bad=("gradient", "fc"))]) == found([steep]) != []
