from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.variance_collapse import variance_collapse
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, variance_collapse)
explains = partial(check_explains, variance_collapse)

FALLEN = observed("scale_collapse", 48, "raw", mean=-2.6, start=-0.1, growth_lg=2.0)


def leap(step: int, before: float = -2.0) -> SemanticEvent:
    return observed("loss_spike", step, height=4.0, before=before)


def test_a_small_scale_without_leaps_of_the_loss_is_a_good_fit() -> None:
    silent(run(FALLEN))


def test_one_leap_may_be_an_odd_batch() -> None:
    silent(run(FALLEN, leap(78)))


def test_leaps_before_it_and_leaps_from_above_zero_are_others_doing() -> None:
    silent(run(leap(20), leap(30), FALLEN, leap(78)))
    silent(run(FALLEN, leap(78, before=0.5), leap(90, before=0.5)))


def test_leaps_without_a_scale_that_falls_are_nothing() -> None:
    silent(run(leap(78), leap(90)))


def test_a_scale_that_falls_and_springs_back_again_and_again() -> None:
    claim = explains(run(FALLEN, leap(78), leap(90)), layer="raw", step=48, failure="optimizer_instability")
    assert "-2.6" in claim.summary and "100-fold" in claim.summary


def test_a_division_by_the_scale_that_is_not_finite() -> None:
    explains(run(FALLEN, observed("loss_nonfinite", 60)), layer="raw", step=48, failure="exploding_gradients")
