from __future__ import annotations

from functools import partial

from neuraldbg.rules.gradient_ascent import gradient_ascent
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, gradient_ascent)
explains = partial(check_explains, gradient_ascent)

GROWN = observed("loss_diverging", 5, growth_lg=1.5, cosine=0.9)
ENTROPY = facts(loss_kind="cross_entropy", optimizers=(optimizer(),))
RISING = [1.0 * 1.05**i for i in range(60)]


def test_a_quiet_start_speaks_against_a_wrong_sign() -> None:
    late = [1.0 - 0.01 * i for i in range(30)] + [0.7 * 1.1**i for i in range(60)]
    silent(run(GROWN, facts=ENTROPY, series={"skill": late}))


def test_an_overshoot_turns_its_gradient_round() -> None:
    silent(run(observed("loss_diverging", 5, cosine=-0.5), facts=ENTROPY, series={"skill": RISING}))


def test_an_adversary_maximises_on_purpose() -> None:
    two = facts(optimizers=(optimizer(), optimizer()))
    silent(run(GROWN, facts=two, series={"skill": RISING}))


def test_a_loss_that_rises_from_the_first_step_on() -> None:
    explains(run(GROWN, facts=ENTROPY, series={"skill": RISING}), step=0, failure="optimizer_instability")
