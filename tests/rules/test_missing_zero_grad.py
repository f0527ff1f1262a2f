from __future__ import annotations

from functools import partial

from neuraldbg.rules.missing_zero_grad import missing_zero_grad
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, missing_zero_grad)
explains = partial(check_explains, missing_zero_grad)

CARRIED = observed("carried_gradient", 1, share=1.0, steps=2)
PARTLY = observed("carried_gradient", 1, share=0.6, steps=2)


def test_a_gradient_carried_in_some_parameters_without_harm_is_only_noted() -> None:
    silent(run(PARTLY))
    silent(run(observed("carried_gradient", 1, share=0.89, steps=2)))


def test_a_carried_gradient_of_unknown_share_without_harm_is_only_noted() -> None:
    silent(run(observed("carried_gradient", 1)))


def test_a_diverging_loss_alone_is_not_its_doing() -> None:
    silent(run(observed("loss_diverging", 30, growth_lg=2.0)))


def test_a_loss_that_swings_and_diverges_long_after() -> None:
    explains(run(PARTLY, observed("loss_diverging", 60, growth_lg=2.0)), step=1, failure="optimizer_instability")


def test_nobody_carries_all_gradients_on_purpose_even_where_the_loss_hides_the_harm() -> None:
    explains(run(CARRIED), step=1, failure="optimizer_instability")
    explains(run(observed("carried_gradient", 1, share=0.9, steps=2)), step=1)
