from __future__ import annotations

from functools import partial

import pytest

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.rules.unnormalised_inputs import unnormalised_inputs
from neuraldbg.run import Run
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, unnormalised_inputs)
explains = partial(check_explains, unnormalised_inputs)

RAW = observed("unscaled_input", 0, rms_lg=3.8, offset=1.0, spread_lg=0.2)
OFFSET = observed("unscaled_input", 0, rms_lg=1.0, offset=12.0, spread_lg=0.1)
STUCK = observed("loss_plateau", 0, skill=1.0)
PINNED = observed("saturation", 0, "tanh1", share=1.0, at_start=True, position="hidden", function="tanh")


DIED = observed("dead_units", 4, "relu", share=0.6, at_start=0.1, rise=0.5)


def overshot(*events: SemanticEvent, first: float = 40.0, last: float = 0.8) -> Run:
    """A loss that starts at `first` times chance, comes down within ten steps and stays at `last` times it."""
    return run(*events, series={"skill": [first] * 3 + [max(last, first / 2**i) for i in range(1, 98)]})


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


def test_a_loss_far_above_chance_at_the_start_that_is_learnt_is_fine() -> None:
    silent(overshot(RAW, DIED, last=0.49))


def test_a_loss_that_starts_near_chance_did_not_overshoot() -> None:
    silent(overshot(RAW, DIED, first=4.9))


def test_without_large_inputs_the_overshoot_is_not_theirs() -> None:
    silent(overshot(DIED, STUCK))
    silent(overshot(observed("unscaled_input", 0, rms_lg=1.4, offset=1.0), DIED, STUCK))


def test_an_overshoot_that_leaves_neither_dead_units_nor_a_plateau_is_fine() -> None:
    silent(overshot(RAW, first=9.0))
    silent(overshot(RAW, observed("dead_units", 4, "relu", share=0.5, at_start=0.1), first=9.0))


def test_an_overshoot_of_decades_that_the_run_only_undoes() -> None:
    silent(overshot(RAW, first=40.0, last=0.45))
    silent(overshot(RAW, observed("saturation", 2, "tanh", share=0.7), first=40.0, last=0.55))
    explains(overshot(RAW, first=40.0, last=0.55), layer=None, step=0, failure="data_anomaly")


def test_a_common_mean_that_keeps_the_loss_at_chance() -> None:
    silent(run(observed("unscaled_input", 0, rms_lg=0.9, offset=7.0), STUCK))
    silent(run(OFFSET, observed("loss_plateau", 0, skill=None)))
    explains(run(OFFSET, STUCK), layer=None, step=0, failure="data_anomaly")


def test_units_that_came_back_and_a_plateau_that_was_left_are_no_harm() -> None:
    silent(overshot(RAW, DIED, recovered(DIED, 30), STUCK, recovered(STUCK, 50), first=9.0))


@pytest.mark.parametrize("other", ["rate_jump", "carried_gradient"])
def test_an_overshoot_beside_another_fault_of_the_updates_is_not_the_inputs(other: str) -> None:
    silent(overshot(RAW, DIED, observed(other, 2)))


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


def test_outputs_as_large_as_the_inputs_kill_units_on_the_way_down() -> None:
    claim = explains(overshot(RAW, DIED, STUCK), layer="relu", step=0, failure="dead_neurons")
    assert claim.evidence_for == (RAW, DIED, STUCK)


def test_outputs_as_large_as_the_inputs_that_end_on_a_plateau_blame_no_layer() -> None:
    explains(overshot(RAW, STUCK, first=5.1, last=0.51), step=0, failure="data_anomaly")


TARGET = observed("unscaled_target", 0, rms_lg=2.3)
THROWN = observed("violent_update", 0, update_lg=-0.05, at_start=True)
PLATEAU = observed("loss_plateau", 5, skill=1.1)


def lost(share: float = 0.95) -> SemanticEvent:
    return observed("saturation", 2, "tanh", share=share, at_start=False)


def test_large_targets_that_are_learned_are_fine() -> None:
    silent(run(TARGET, THROWN, lost(), series={"skill": [0.5] * 60}))
    silent(run(TARGET, THROWN, series={"skill": [1.1] * 60}))


def test_large_targets_without_a_violent_update_at_the_start_threw_nothing() -> None:
    silent(run(TARGET, PLATEAU))
    silent(run(TARGET, observed("violent_update", 11, update_lg=-0.05), PLATEAU))


def test_violent_updates_on_usual_targets_are_the_rates() -> None:
    silent(run(THROWN, lost(), PLATEAU))


def test_a_jump_of_the_rate_is_the_schedules_doing() -> None:
    silent(run(TARGET, observed("rate_jump", 3, decades=2.0), THROWN, PLATEAU))


@pytest.mark.parametrize("harm", [PLATEAU, observed("loss_diverging", 9, growth_lg=2.0), observed("loss_nonfinite", 9)])
def test_targets_in_the_hundreds_whose_gradients_throw_the_weights(harm: SemanticEvent) -> None:
    explains(run(TARGET, THROWN, harm), step=0, failure="data_anomaly")


def test_layers_thrown_to_their_limits_and_a_loss_that_ends_at_chance() -> None:
    explains(run(TARGET, THROWN, lost(), series={"skill": [90.0] * 30 + [1.1] * 30}), step=0, failure="data_anomaly")
    silent(run(TARGET, THROWN, lost(share=0.5), series={"skill": [90.0] * 30 + [1.1] * 30}))


def test_a_loss_that_never_left_where_it_began_on_inputs_in_the_thousands() -> None:
    flat = observed("loss_plateau", 0, skill=None, since=0)
    silent(run(observed("unscaled_input", 0, rms_lg=1.4, offset=0.1), flat))
    silent(run(RAW, observed("loss_plateau", 40, skill=None, since=40)))
    silent(run(RAW, observed("loss_plateau", 0, skill=0.5, since=0)))  # it rests far below chance
    silent(run(RAW, flat, recovered(flat, 30)))
    explains(run(RAW, flat), layer=None, step=0, failure="data_anomaly")


def falls(last: float, first: float = 1.0, steps: int = 120) -> dict[str, list[float]]:
    return {"skill": [first + (last - first) * k / (steps - 1) for k in range(steps)]}


def test_a_run_spent_on_growing_outputs_to_the_size_of_the_targets() -> None:
    silent(run(observed("unscaled_target", 0, rms_lg=1.8), series=falls(0.6)))
    silent(run(TARGET, series=falls(0.4)))  # more than half of it is learned
    silent(run(TARGET, series=falls(0.97)))  # nothing moves: another rule's matter
    silent(run(TARGET, series=falls(0.6, first=3.0)))
    silent(run(TARGET, series=falls(0.6, steps=99)))
    explains(run(TARGET, series=falls(0.6)), layer=None, step=0, failure="data_anomaly")
