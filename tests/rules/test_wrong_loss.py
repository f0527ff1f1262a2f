from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.wrong_loss import wrong_loss
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, wrong_loss)
explains = partial(check_explains, wrong_loss)

OUTSIDE = observed("target_range", 0, loss_kind="bce", target_low=10.0, target_high=60.0)


def just_outside(low: float = 0.0, high: float = 1.0) -> SemanticEvent:
    return observed("target_range", 0, loss_kind="bce", target_low=low, target_high=high)


def test_targets_just_outside_without_harm_are_only_noted() -> None:
    silent(run(just_outside(high=1.04)))
    silent(run(just_outside(low=-0.04)))


def test_a_runaway_with_targets_inside_has_another_cause() -> None:
    silent(run(observed("loss_diverging", 5), observed("loss_nonfinite", 25)))


def test_targets_far_outside_need_no_harm_to_be_wrong() -> None:
    explains(run(OUTSIDE), step=0, failure="optimizer_instability")
    explains(run(just_outside(high=1.06)))
    explains(run(just_outside(low=-1.0)))


def test_targets_just_outside_that_run_away() -> None:
    explains(run(just_outside(high=1.04), observed("loss_nonfinite", 25)), step=0, failure="exploding_gradients")


def test_a_loss_without_a_lower_bound_runs_away() -> None:
    grown = observed("exploding_gradient", 18, growth_lg=2.5, cosine=0.99)
    explains(run(OUTSIDE, grown, observed("loss_nonfinite", 25)), step=0, failure="exploding_gradients")


def test_a_loss_that_never_fits_is_an_instability() -> None:
    explains(run(OUTSIDE, observed("loss_plateau", 5, skill=1.0)), failure="optimizer_instability")
