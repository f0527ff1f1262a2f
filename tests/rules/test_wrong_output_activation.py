from __future__ import annotations

from functools import partial

from neuraldbg.rules.wrong_output_activation import wrong_output_activation
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, wrong_output_activation)
explains = partial(check_explains, wrong_output_activation)


def test_a_softmax_over_one_key_that_passes_its_gradient_is_fine() -> None:
    silent(run(observed("softmax_over_one", 0, "attention")))


def test_hidden_units_may_be_silent() -> None:
    silent(run(observed("dead_units", 0, "relu", share=0.9, position="hidden")))


def test_targets_within_reach_are_fine() -> None:
    reach = observed("output_range", 0, "relu_out", covered=0.95, dead=0.0)
    silent(run(reach, observed("loss_plateau", 0, skill=1.0)))


def test_targets_out_of_reach_of_a_loss_that_falls_are_only_early() -> None:
    reach = observed("output_range", 0, "sigmoid", covered=0.5, dead=0.0)
    silent(run(reach, series={"skill": [0.97**i for i in range(100)]}))


def test_a_softmax_over_one_unit_passes_no_gradient() -> None:
    cut = observed("zero_gradient", 0, "score", share=1.0)
    explains(run(observed("softmax_over_one", 0, "squash"), cut), layer="squash", failure="vanishing_gradients")


def test_a_rectified_output_that_is_silent_for_some_classes() -> None:
    reach = observed("output_range", 12, "relu_out", covered=1.0, dead=0.33)
    explains(run(reach), layer="relu_out", step=12, failure="dead_neurons")


def test_output_units_that_died_without_known_targets() -> None:
    dead = observed("dead_units", 30, "relu_out", share=0.33, position="output")
    explains(run(dead), layer="relu_out", step=30, failure="dead_neurons")


def test_a_sigmoid_that_cannot_reach_the_targets() -> None:
    reach = observed("output_range", 0, "sigmoid", covered=0.1, dead=0.0)
    model = facts(module("lin", 0), module("sigmoid", 1, "sigmoid", position="output"))
    stuck = observed("loss_plateau", 0, skill=1.0)
    explains(run(reach, stuck, facts=model), layer="sigmoid", failure="saturated_activations")


def test_half_of_the_targets_out_of_reach_and_a_loss_that_keeps_half_of_chance() -> None:
    reach = observed("output_range", 0, "out", covered=0.5, dead=None)
    model = facts(module("lin", 0), module("out", 1, "relu", position="output"))
    stays = {"skill": [max(0.55, 0.97**i) for i in range(100)]}
    explains(run(reach, facts=model, series=stays), layer="out", failure="dead_neurons")


def test_a_small_part_of_the_targets_out_of_reach_explains_no_half_of_the_loss() -> None:
    reach = observed("output_range", 0, "out", covered=0.8, dead=None)
    silent(run(reach, series={"skill": [max(0.55, 0.97**i) for i in range(100)]}))


def test_scores_in_a_sigmoid_keep_the_loss_above_its_floor_while_it_falls() -> None:
    reach = observed("output_range", 0, "squash", covered=None, dead=None, floor=0.54)
    model = facts(module("lin", 0), module("squash", 1, "sigmoid", position="output"))
    falling = {"skill": [max(0.6, 0.97**i) for i in range(100)]}
    explains(run(reach, facts=model, series=falling), layer="squash", failure="saturated_activations")


def test_a_floor_near_zero_hinders_nothing() -> None:
    reach = observed("output_range", 0, "squash", covered=None, dead=None, floor=0.1)
    silent(run(reach, series={"skill": [0.97**i for i in range(100)]}))


def test_a_loss_below_the_floor_has_scores_that_were_scaled_up() -> None:
    reach = observed("output_range", 0, "squash", covered=None, dead=None, floor=0.54)
    silent(run(reach, series={"skill": [max(0.4, 0.97**i) for i in range(100)]}))


def test_scores_that_came_near_no_limit_do_harm_only_where_the_loss_stays_at_chance() -> None:
    reach = observed("output_range", 0, "sigmoid", covered=None, dead=None, floor=0.6, pushed=False)
    silent(run(reach))
    explains(run(reach, observed("loss_plateau", 0, skill=1.0)), layer="sigmoid", step=0)
