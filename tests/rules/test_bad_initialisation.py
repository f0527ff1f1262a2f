from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.bad_initialisation import bad_initialisation
from neuraldbg.run import Series
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, bad_initialisation)
explains = partial(check_explains, bad_initialisation)

STUCK = observed("loss_plateau", 0, skill=1.0)
SMALL = observed("small_weights", 0, "lin0", gain_lg=-1.1, depth_lg=-9.0)
SILENT_LAYER = observed("dead_units", 0, "relu3", share=1.0, at_start=1.0, rise=0.0, position="hidden")


FALLING = [0.97**i for i in range(100)]


def starved(step: int = 0, **changes: Any) -> SemanticEvent:
    given = {"slope": 0.9, "first_last_lg": -4.5, "layers": 6, "bounded_layers": 0, **changes}
    return observed("vanishing_with_depth", step, "lin0", **given)


def late(until: int) -> list[float]:
    """A loss that leaves chance at this step and then falls far."""
    return [1.0] * until + [0.9**i for i in range(1, 101 - until)]


def test_small_weights_that_learn_are_fine() -> None:
    silent(run(SMALL, series={"skill": FALLING}))
    silent(run(SMALL, series={"skill": late(29)}))


def test_a_few_points_at_chance_are_no_lost_third() -> None:
    few = Series(tuple((10 * i, v) for i, v in enumerate([1.0, 1.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02])))
    silent(run(SMALL, series={"skill": few}))


def test_a_gradient_that_shrinks_with_depth_in_a_net_that_learns_is_fine() -> None:
    silent(run(starved(), series={"skill": FALLING}))


def test_the_slope_of_a_healthy_deep_net_proves_nothing() -> None:
    silent(run(starved(slope=0.64), STUCK))


def test_bounded_activations_shrink_the_gradient_with_good_weights_too() -> None:
    silent(run(starved(bounded_layers=5), STUCK))


def test_a_gradient_that_shrinks_only_later_did_not_start_so() -> None:
    silent(run(starved(step=3), STUCK))


@pytest.mark.parametrize(
    "other",
    ["norm_over_one", "softmax_over_one", "negative_bias", "unscaled_input", "output_range", "zero_factors"],
)
def test_another_fault_that_starves_the_gradient_is_the_cause(other: str) -> None:
    silent(run(observed(other, 0, "lin3"), starved(), STUCK))


def test_depth_in_time_is_no_depth_of_weights() -> None:
    silent(run(starved(), STUCK, facts=facts(structure=("recurrent",))))


def test_a_layer_that_a_bias_silences_is_another_cause() -> None:
    silent(run(observed("negative_bias", 0, "lin3", ratio=-0.99), SILENT_LAYER, STUCK))


def test_a_layer_that_an_input_offset_silences_is_another_cause() -> None:
    silent(run(observed("unscaled_input", 0, offset=12.0), SILENT_LAYER, STUCK))


def test_a_dead_output_layer_is_another_cause() -> None:
    silent(run(observed("dead_units", 0, "out", share=1.0, at_start=1.0, position="output"), STUCK))


def test_a_residual_sum_grows_by_its_structure() -> None:
    grows = observed("large_weights", 0, "block0", gain_lg=1.0)
    silent(run(grows, observed("loss_nonfinite", 2), facts=facts(structure=("residual",))))


def test_a_function_that_overflows_at_once_is_another_cause() -> None:
    overflow = observed("nonfinite_activation", 0, "exp", inf_share=0.3, largest=1e10)
    model = facts(module("lin", 0), module("exp", 1, "other"))
    silent(run(observed("large_weights", 0, "lin", gain_lg=2.0), overflow, facts=model))


def test_a_signal_that_shrinks_from_layer_to_layer() -> None:
    explains(run(SMALL, STUCK), layer="lin0", step=0, failure="vanishing_gradients")


def test_small_weights_that_had_to_grow_for_a_third_of_the_run() -> None:
    explains(run(SMALL, series={"skill": late(30)}), layer="lin0", step=0, failure="vanishing_gradients")


def test_a_gradient_that_shrinks_with_depth_though_nothing_is_bounded() -> None:
    claim = explains(run(starved(), STUCK), layer="lin0", step=0, failure="vanishing_gradients")
    assert "7.94-fold" in claim.summary


def test_a_gradient_that_shrinks_with_depth_until_the_weights_have_grown() -> None:
    explains(run(starved(step=2, slope=0.7), series={"skill": late(50)}), layer="lin0", step=2)


def test_a_signal_that_grows_from_layer_to_layer() -> None:
    grows = observed("large_weights", 0, "lin0", gain_lg=1.5)
    explains(run(grows, observed("loss_nonfinite", 1)), layer="lin0", failure="exploding_gradients")


def test_a_hidden_layer_that_is_silent_before_the_first_update() -> None:
    explains(run(SILENT_LAYER, STUCK), layer="relu3", step=0, failure="dead_neurons")


def test_units_that_start_alike() -> None:
    explains(run(observed("identical_units", 0, "lin0", share=1.0), STUCK), layer="lin0")


STACK: dict[str, Any] = {"depth_lg": 2.0, "gain_lg": 0.85, "weights_lg": 2.6, "residual": False}


@pytest.mark.parametrize("change", [{"gain_lg": 0.5}, {"weights_lg": 1.0}, {"residual": True}])
def test_growth_that_single_layers_or_the_weights_do_not_make_is_another_cause(change: dict[str, Any]) -> None:
    growth = observed("signal_growth", 0, "0", **{**STACK, **change})
    silent(run(growth, observed("loss_plateau", 90, skill=8.0)))


def test_a_stack_in_which_each_layer_grows_the_signal_a_little_too_much() -> None:
    growth = observed("signal_growth", 0, "0", **STACK)
    explains(run(growth, observed("loss_plateau", 90, skill=8.0)), layer="0", failure="exploding_gradients")


def test_a_function_that_grows_what_good_weights_give_it_is_another_cause() -> None:
    growth, steep = observed("signal_growth", 0, "0", **STACK), observed("function_growth", 0, "1", gain_lg=1.5)
    silent(run(growth, steep, observed("loss_plateau", 90, skill=8.0)))


def test_units_that_started_alike_and_parted_in_time_are_only_noted() -> None:
    equal = observed("identical_units", 0, "fc1", share=1.0, layers=3)
    silent(run(equal, series={"skill": [max(0.05, 0.9**i) for i in range(100)]}))


def test_units_that_start_alike_slow_a_loss_that_falls() -> None:
    equal = observed("identical_units", 0, "fc1", share=1.0, layers=3)
    slow = {"skill": [max(0.5, 0.99**i) for i in range(100)]}
    explains(run(equal, series=slow), layer="fc1", step=0, failure="optimizer_instability")


def test_units_that_the_bias_alone_decides_in_three_layers_of_a_net_that_learns_little() -> None:
    dead = [observed("dead_units", 0, f"relu{k}", share=0.5, at_start=0.5, rise=0.0) for k in range(3)]
    little, more = ({"skill": [1.0, *[v] * 99]} for v in (0.7, 0.45))
    silent(run(starved(), *dead[:2], series=little))
    silent(run(starved(), *dead, series=more))
    explains(run(starved(), *dead, series=little), layer="lin0", step=0)
