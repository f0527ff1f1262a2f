from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.rules.learning_rate_too_low import STARVED_BY, learning_rate_too_low
from neuraldbg.run import Run
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, learning_rate_too_low)
explains = partial(check_explains, learning_rate_too_low)


def slow(left: float = 0.77) -> SemanticEvent:
    return observed("slow_progress", 0, tail_head=left, monotone=1.0, cosine=1.0)


STUCK = observed("loss_plateau", 30, skill=0.99)


def near(*events: SemanticEvent, path: float | None = 0.001, cosine: float | None = None, **changes: Any) -> Run:
    """A hundred steps whose updates add up to so much of the weights, under batch noise; None leaves a series out."""
    noise = [0.97 + 0.05 * (i % 2) for i in range(100)]
    known = {"skill": noise, "rate": [1e-5] * 100, **changes}
    short = [] if path is None else [observed("short_path", 0, path=path, cosine=cosine, steps=100)]
    return run(*short, *events, series={name: values for name, values in known.items() if values is not None})


def test_a_steady_fall_that_arrives_is_healthy() -> None:
    silent(run(slow(0.01)))


def test_a_loss_far_below_chance_is_only_early() -> None:
    silent(run(slow(), series={"skill": [0.2] * 50}))


def test_a_saturated_layer_is_the_deeper_cause() -> None:
    silent(run(slow(), observed("saturation", 0, "sigmoid", share=0.75, at_start=True)))


def test_huge_targets_are_the_deeper_cause() -> None:
    silent(run(slow(), observed("unscaled_target", 0, rms_lg=7.0)))


def test_a_plateau_of_weights_that_went_far_has_another_cause() -> None:
    silent(near(STUCK, path=None))
    silent(near(STUCK, path=0.051))


def test_weights_that_hardly_moved_while_the_loss_fell_are_fine() -> None:
    silent(near())
    silent(near(STUCK, skill=[0.59] * 100))
    silent(near(STUCK, skill=None, loss=[2.0 * 0.98**i for i in range(100)]))


def test_a_plateau_that_was_left_is_none() -> None:
    silent(near(STUCK, recovered(STUCK, 90)))


def test_a_loss_that_nobody_saw_says_nothing() -> None:
    silent(near(STUCK, skill=None))


def test_a_rate_of_zero_was_set_so() -> None:
    silent(near(STUCK, rate=[0.0] * 100))


def test_non_finite_values_stop_the_weights_as_well() -> None:
    silent(near(STUCK, observed("nonfinite_gradient", 20, "fc")))


@pytest.mark.parametrize("symptom", STARVED_BY)
def test_weights_that_get_no_usable_gradient_have_no_rate_to_blame(symptom: str) -> None:
    silent(near(STUCK, observed(symptom, 0, "fc")))


def test_a_steady_fall_that_leaves_most_of_the_loss() -> None:
    explains(run(slow(), series={"skill": [5.0] * 50}), step=0, failure="optimizer_instability")


def test_weights_that_have_hardly_gone_anywhere_under_batch_noise() -> None:
    claim = explains(near(STUCK), step=0, failure="optimizer_instability")
    assert "0.10%" in claim.summary


def test_just_under_five_percent_of_the_weights_are_hardly_anywhere() -> None:
    explains(near(STUCK, path=0.049), step=0)


def test_a_flat_loss_of_unknown_chance_may_have_converged() -> None:
    silent(near(STUCK, skill=None, loss=[0.3] * 100, path=0.021))
    explains(near(STUCK, skill=None, loss=[0.3] * 100, path=0.019), step=0)


FALLING = [1.0 - 0.004 * i for i in range(100)]


def test_a_falling_loss_whose_gradient_turns_with_the_batches_is_learning() -> None:
    silent(near(path=0.07, cosine=0.4, skill=FALLING))
    silent(near(path=0.07, cosine=None, skill=FALLING))


def test_a_straight_way_that_leaves_less_than_half_is_learning() -> None:
    silent(near(path=0.07, cosine=0.9, skill=[1.0 - 0.006 * i for i in range(100)]))


@pytest.mark.parametrize("series", [{"skill": FALLING}, {"skill": None, "loss": FALLING}])
def test_a_short_and_straight_way_that_leaves_more_than_half(series: dict[str, Any]) -> None:
    explains(near(path=0.07, cosine=0.6, **series), step=0)


def test_where_chance_is_unknown_the_loss_is_measured_against_its_start() -> None:
    explains(near(STUCK, skill=None, loss=[5.0 - 0.001 * i for i in range(100)]), step=0)


ZERO = observed("rate_zero", 60, before=1e-3, steps=180, share=0.75)


def test_a_schedule_that_ended_after_all_was_learned_is_only_noted() -> None:
    (claim,) = learning_rate_too_low(near(ZERO, skill=[0.9**i for i in range(100)]))
    assert not claim.outcome and claim.step == 60


def test_a_schedule_that_ended_with_most_left_to_learn() -> None:
    claim = explains(near(ZERO), step=60, failure="optimizer_instability")
    assert claim.summary == "the rate is zero for the last 75% of the steps"
