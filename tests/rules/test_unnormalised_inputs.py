from __future__ import annotations

from functools import partial

from neuraldbg.rules.unnormalised_inputs import unnormalised_inputs
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, unnormalised_inputs)
explains = partial(check_explains, unnormalised_inputs)

RAW = observed("unscaled_input", 0, rms_lg=3.8, offset=1.0, spread_lg=0.2)
OFFSET = observed("unscaled_input", 0, rms_lg=1.0, offset=12.0, spread_lg=0.1)
STUCK = observed("loss_plateau", 0, skill=1.0)
PINNED = observed("saturation", 0, "tanh1", share=1.0, at_start=True, position="hidden", function="tanh")


def test_large_inputs_that_nothing_follows_are_fine() -> None:
    silent(run(RAW))


def test_saturation_without_large_inputs_is_another_cause() -> None:
    silent(run(PINNED, STUCK))


def test_saturation_that_grows_in_training_is_another_cause() -> None:
    silent(run(RAW, observed("saturation", 40, "tanh1", share=1.0, at_start=False, position="hidden")))


def test_saturation_behind_a_rectifier_is_another_cause() -> None:
    model = facts(module("lin", 0), module("relu", 1, "relu"), module("tanh1", 2, "tanh"))
    silent(run(RAW, PINNED, facts=model))


def test_dead_units_with_the_offset_of_a_healthy_run_are_fine() -> None:
    mild = observed("unscaled_input", 0, rms_lg=1.0, offset=5.3)
    silent(run(mild, observed("dead_units", 0, "relu", share=0.42, at_start=0.42)))


def test_a_recurrent_layer_that_learns_can_take_its_inputs() -> None:
    model = facts(module("lstm", 0, recurrent=True))
    silent(run(RAW, facts=model, series={"skill": [0.97**i for i in range(100)]}))


def test_the_first_bounded_layer_at_its_limits() -> None:
    explains(run(RAW, PINNED, STUCK), layer="tanh1", step=0, failure="saturated_activations")


def test_units_that_point_away_from_a_common_mean() -> None:
    dead = observed("dead_units", 0, "act", share=0.4, at_start=0.4)
    explains(run(OFFSET, dead), layer="act", step=0, failure="dead_neurons")


def test_gates_of_a_recurrent_layer_that_learns_nothing() -> None:
    model = facts(module("lstm", 0, recurrent=True), module("out", 1))
    explains(run(RAW, STUCK, facts=model), layer="lstm", step=0, failure="saturated_activations")


def test_huge_inputs_and_targets_blame_the_data_and_no_layer() -> None:
    both = (RAW, observed("unscaled_target", 0, rms_lg=7.0), PINNED, observed("slow_progress", 0, tail_head=0.9))
    explains(run(*both), step=0, failure="data_anomaly")


def test_raw_inputs_that_run_away_at_once() -> None:
    update = observed("violent_update", 0, "lin", update_lg=1.0)
    explains(run(RAW, update, observed("loss_nonfinite", 3)), step=0, failure="exploding_gradients")
