from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.rules.learning_rate_too_high import learning_rate_too_high
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, learning_rate_too_high)
explains = partial(check_explains, learning_rate_too_high)

LARGE = observed("violent_update", 0, "fc1", update_lg=-0.3, at_start=True)


def test_a_large_update_that_nothing_follows_is_nothing() -> None:
    silent(run(LARGE))


def test_units_that_were_dead_before_the_first_update_are_not_its_doing() -> None:
    silent(run(LARGE, observed("dead_units", 0, "relu", share=0.5, at_start=0.5, rise=0.0)))


def test_a_jump_of_the_schedule_before_it_is_the_schedules_doing() -> None:
    jump = observed("rate_jump", 50, decades=2.0)
    late = observed("violent_update", 50, "fc1", update_lg=-0.1)
    silent(run(jump, late, observed("loss_diverging", 52)))


def test_a_late_update_after_a_growing_gradient_is_a_symptom() -> None:
    grown = observed("exploding_gradient", 30, growth_lg=3.0, cosine=0.98)
    silent(run(grown, observed("violent_update", 40, "fc1", update_lg=-0.1), observed("loss_nonfinite", 45)))


def test_a_plateau_that_ended_is_nothing() -> None:
    plateau = observed("loss_plateau", 2, skill=1.0)
    silent(run(LARGE, plateau, recovered(plateau, 40)))


FALLING = {"skill": [0.97**i for i in range(100)]}


def died(layer: str, step: int = 3, share: float = 0.6) -> SemanticEvent:
    return observed("dead_units", step, layer, share=share, at_start=0.05, rise=share - 0.05)


def test_one_layer_of_a_net_that_learns_may_have_had_more_units_than_it_needs() -> None:
    silent(run(LARGE, died("relu2"), series=FALLING))


def test_units_that_die_in_several_layers_behind_a_falling_loss() -> None:
    explains(run(LARGE, died("relu2"), died("relu1", 9), series=FALLING), layer="relu2", step=3, failure="dead_neurons")


def test_one_layer_that_lost_nearly_all_units_is_lost() -> None:
    explains(run(LARGE, died("relu2", share=0.71), series=FALLING), layer="relu2", step=3, failure="dead_neurons")


def test_one_layer_that_dies_while_the_loss_stays_high() -> None:
    explains(run(LARGE, died("relu2"), series={"skill": [0.4] * 60}), layer="relu2", step=3, failure="dead_neurons")


def test_a_death_in_bouts_began_with_the_first_of_them() -> None:
    bouts = [died("relu2", 1, share=0.2), died("relu2", 19, share=0.35), died("relu2", 90)]
    explains(run(LARGE, *bouts), layer="relu2", step=19, failure="dead_neurons")


REPLACED = observed("violent_update", 0, "fc1", update_lg=-0.05, at_start=True)
JUMP = observed("loss_spike", 12, height=4.0)


def ends(loss: float) -> dict[str, list[float]]:
    return {"loss": [1.0] + [loss] * 60}


def test_a_loss_of_unknown_chance_that_jumps_and_comes_down_is_healthy() -> None:
    silent(run(REPLACED, JUMP, series=ends(0.9)))
    silent(run(REPLACED, observed("loss_spike", 12, height=2.9), series=ends(1.2)))
    silent(run(REPLACED, series=ends(1.2)))


def test_a_first_step_that_leaves_a_third_of_the_weights_is_not_thrown() -> None:
    silent(run(observed("violent_update", 0, "fc1", update_lg=-0.16, at_start=True), JUMP, series=ends(1.2)))


def test_a_game_of_two_optimizers_has_losses_that_rise() -> None:
    two = facts(optimizers=(optimizer("Adam"), optimizer("Adam")))
    silent(run(REPLACED, JUMP, series=ends(1.2), facts=two))


def test_weights_replaced_in_the_first_step_and_a_loss_that_ends_above_the_untrained_one() -> None:
    explains(run(REPLACED, JUMP, series=ends(1.2)), step=0, failure="optimizer_instability")


def test_a_loss_stuck_after_the_first_update() -> None:
    stuck = observed("loss_plateau", 1, skill=1.0)
    dead = observed("dead_units", 1, "relu2", share=1.0, at_start=0.0, rise=1.0)
    explains(run(LARGE, dead, stuck), step=0, failure="optimizer_instability")


def test_a_plateau_dated_from_the_start_of_the_run_is_its_outcome_and_not_its_root() -> None:
    late = observed("violent_update", 1, "fc1", update_lg=-0.1, at_start=True)
    dead = observed("dead_units", 2, "relu2", share=0.8, at_start=0.0, rise=0.8)
    stuck = observed("loss_plateau", 0, skill=1.0)
    claim = explains(run(stuck, late, dead), step=1, failure="optimizer_instability")
    assert claim.root == late


def test_a_plateau_long_before_the_update_is_not_its_outcome() -> None:
    late = observed("violent_update", 40, "fc1", update_lg=-0.1)
    silent(run(observed("loss_plateau", 0, skill=1.0), late))


def test_a_runaway_to_infinity() -> None:
    explains(run(LARGE, observed("loss_nonfinite", 2)), step=0, failure="exploding_gradients")


def test_a_runaway_of_small_updates_whose_gradient_turns_round() -> None:
    grown = observed("exploding_gradient", 10, growth_lg=3.0, cosine=-0.6)
    explains(run(grown, observed("loss_diverging", 20)), step=10, failure="exploding_gradients")


def test_a_runaway_in_one_direction_is_not_the_rates() -> None:
    grown = observed("exploding_gradient", 10, growth_lg=3.0, cosine=0.9)
    silent(run(grown, observed("loss_diverging", 20)))


def test_a_flat_loss_of_unknown_chance_is_no_harm() -> None:
    """The loss of a policy or of a game says nothing about how well it learns."""
    flat = {"loss": [1.0] * 60}
    update = observed("violent_update", 0, update_lg=-0.5)
    silent(run(update, observed("loss_plateau", 0, skill=None, tail_head=1.0), series=flat))


def test_a_change_that_no_step_at_this_rate_can_make_is_not_the_rates() -> None:
    late = observed("violent_update", 50, update_lg=-0.1)
    silent(run(observed("outside_write", 50, times_lg=1.0), late, observed("loss_nonfinite", 55)))
    silent(run(observed("outside_write", 49, times_lg=1.0), late, observed("loss_nonfinite", 55)))
    explains(run(observed("outside_write", 20, times_lg=1.0), late, observed("loss_nonfinite", 55)), step=50)


THROWN = observed("violent_update", 0, update_lg=0.0, at_start=True)
SILENT = observed("zero_gradient", 2, "fc3", share=1.0)


def test_a_gradient_of_zero_after_the_loss_came_down_is_the_end_of_a_training() -> None:
    assert list(learning_rate_too_high(run(THROWN, SILENT, series={"loss": [1.0] * 5 + [0.0] * 95}))) == []


def test_a_gradient_of_zero_long_after_the_first_update_is_not_its_doing() -> None:
    late = observed("zero_gradient", 90, "fc3", share=1.0)
    assert list(learning_rate_too_high(run(THROWN, late, series={"loss": [-0.3] * 100}))) == []


def test_a_policy_that_a_first_update_threw_where_no_gradient_comes_is_a_note() -> None:
    (claim,) = learning_rate_too_high(run(THROWN, SILENT, series={"loss": [-0.3] * 100}))
    assert not claim.outcome and claim.step == 0
    assert claim.summary == "the update is 1 of the weights, and from step 2 on the gradient is exactly zero"


def test_weights_replaced_at_the_start_and_jumps_above_chance_again_and_again() -> None:
    replaced = observed("violent_update", 0, update_lg=-0.1, at_start=True)
    once, twice = (observed("loss_spike", k, over_chance=2.5) for k in (30, 60))
    silent(run(replaced, once, series={"skill": [1.0, *[0.1] * 99]}))
    silent(run(LARGE, once, twice, series={"skill": [1.0, *[0.1] * 99]}))
    explains(run(replaced, once, twice, series={"skill": [1.0, *[0.1] * 99]}), step=0)


def test_weights_replaced_at_the_start_that_throw_the_loss_and_leave_it_near_chance() -> None:
    replaced = observed("violent_update", 0, update_lg=-0.1, at_start=True)
    silent(run(replaced, series={"skill": [1.0, 2.9, *[0.7] * 98]}))
    silent(run(replaced, series={"skill": [1.0, 5.0, *[0.4] * 98]}))
    explains(run(replaced, series={"skill": [1.0, 5.0, *[0.7] * 98]}), step=0)


def test_a_loss_of_both_signs_has_no_scale_to_be_thrown_by() -> None:
    replaced = observed("violent_update", 0, update_lg=-0.1, at_start=True)
    spike = observed("loss_spike", 30, height=0.5)
    silent(run(replaced, spike, series={"loss": [0.01, -0.2, *[0.2] * 98]}))
    explains(run(replaced, spike, series={"loss": [0.01, 0.2, *[0.2] * 98]}), step=0)
    alike = {"skill": [1.0, 5.0, *[0.7] * 98], "loss": [0.7, 0.9, *[0.2] * 98]}  # the chance fell, not the loss
    silent(run(replaced, series=alike))
    explains(run(replaced, series={**alike, "loss": [0.7, 3.5, *[0.5] * 98]}), step=0)
    thrown = {"skill": [1.0, 5.0, *[0.7] * 98]}  # a policy's cross entropy, times advantages of both signs
    silent(run(replaced, series={**thrown, "loss": [0.1, -0.3, *[0.2] * 98]}))
    explains(run(replaced, series={**thrown, "loss": [0.1, 0.3, *[0.2] * 98]}), step=0)
