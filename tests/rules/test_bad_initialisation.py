from __future__ import annotations

from functools import partial

from neuraldbg.rules.bad_initialisation import bad_initialisation
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, bad_initialisation)
explains = partial(check_explains, bad_initialisation)

STUCK = observed("loss_plateau", 0, skill=1.0)
SMALL = observed("small_weights", 0, "lin0", gain_lg=-1.1, depth_lg=-9.0)
SILENT_LAYER = observed("dead_units", 0, "relu3", share=1.0, at_start=1.0, rise=0.0, position="hidden")


def test_small_weights_that_learn_are_fine() -> None:
    silent(run(SMALL, series={"skill": [0.97**i for i in range(100)]}))


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


def test_a_signal_that_grows_from_layer_to_layer() -> None:
    grows = observed("large_weights", 0, "lin0", gain_lg=1.5)
    explains(run(grows, observed("loss_nonfinite", 1)), layer="lin0", failure="exploding_gradients")


def test_a_hidden_layer_that_is_silent_before_the_first_update() -> None:
    explains(run(SILENT_LAYER, STUCK), layer="relu3", step=0, failure="dead_neurons")


def test_units_that_start_alike() -> None:
    explains(run(observed("identical_units", 0, "lin0", share=1.0), STUCK), layer="lin0")
