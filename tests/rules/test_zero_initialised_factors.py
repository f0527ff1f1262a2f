from __future__ import annotations

from functools import partial

from neuraldbg.rules.zero_initialised_factors import zero_initialised_factors
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, zero_initialised_factors)
explains = partial(check_explains, zero_initialised_factors)

ZERO = observed("zero_factors", 0, "adapter.up")


def test_a_zero_factor_that_gets_a_gradient_is_fine() -> None:
    silent(run(ZERO))


def test_two_zero_factors_block_each_other() -> None:
    cut = observed("zero_gradient", 0, "adapter.up", share=1.0)
    explains(run(ZERO, cut), layer="adapter.up", step=0, failure="vanishing_gradients")


def test_a_branch_that_stays_silent_while_the_rest_learns() -> None:
    zero = observed("zero_factors", 0, "branch.a", other="branch.b")
    dead = observed("dead_units", 0, "branch.act", share=1.0, previous="branch.b")
    falling = {"skill": [0.97**i for i in range(100)]}
    explains(run(zero, dead, series=falling), layer="branch.a", step=0)


def test_dead_units_elsewhere_are_not_the_factors_doing() -> None:
    zero = observed("zero_factors", 0, "branch.a", other="branch.b")
    for share, before in ((1.0, "fc"), (0.5, "branch.b")):
        dead = observed("dead_units", 0, "act", share=share, previous=before)
        silent(run(zero, dead, series={"skill": [0.97**i for i in range(100)]}))


def test_a_net_that_starts_at_zero_as_a_whole_is_another_cause() -> None:
    silent(run(ZERO, observed("identical_units", 0, "fc1", layers=4), observed("loss_plateau", 0, skill=1.0)))
