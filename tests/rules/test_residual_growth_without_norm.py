from __future__ import annotations

from functools import partial

from neuraldbg.rules.residual_growth_without_norm import residual_growth_without_norm
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, residual_growth_without_norm)
explains = partial(check_explains, residual_growth_without_norm)

TOWER = facts(module("blocks.0", 0, container=True), module("blocks.0.conv1", 1), structure=("residual",))
GROWTH = observed("signal_growth", 0, "blocks.0.conv1", depth_lg=2.4, gain_lg=0.2, residual=True, has_norm=False)
END = observed("loss_nonfinite", 2)


def test_a_tower_that_trains_is_fine() -> None:
    silent(run(GROWTH, facts=TOWER))


def test_a_normalised_tower_has_another_cause() -> None:
    normed = observed("signal_growth", 0, "blocks.0.conv1", depth_lg=2.4, residual=True, has_norm=True)
    silent(run(normed, END, facts=TOWER))


def test_a_plain_stack_has_another_cause() -> None:
    plain = observed("signal_growth", 0, "lin0", depth_lg=2.4, residual=False, has_norm=False)
    silent(run(plain, END))


def test_growth_that_training_made_is_not_the_structures() -> None:
    late = observed("signal_growth", 40, "blocks.0.conv1", depth_lg=2.4, residual=True)
    silent(run(late, observed("loss_nonfinite", 50), facts=TOWER))


def test_a_tower_whose_loss_explodes_names_the_block() -> None:
    explains(run(GROWTH, END, facts=TOWER), layer="blocks.0", step=0, failure="exploding_gradients")


def test_a_tower_that_is_below_chance_from_the_first_steps_on_is_fine() -> None:
    silent(run(GROWTH, facts=TOWER, series={"skill": [3.0, *[0.8] * 99]}))


def test_a_tower_that_spends_a_third_of_the_run_on_coming_down_to_chance() -> None:
    slow = {"skill": [max(0.8, 400 * 0.83**i) for i in range(100)]}
    explains(run(GROWTH, facts=TOWER, series=slow), layer="blocks.0", step=0)


def test_growth_that_a_power_between_the_layers_makes_is_no_sum() -> None:
    silent(run(observed("function_growth", 0, "power", gain_lg=2.0, kind="Power"), GROWTH, END, facts=TOWER))
