from __future__ import annotations

from functools import partial

from neuraldbg.rules.double_softmax import double_softmax
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, double_softmax)
explains = partial(check_explains, double_softmax)

TWICE = observed("double_softmax", 0, "softmax", chance=2.3)


def test_a_loss_that_falls_far_all_the_same_is_only_noted() -> None:
    silent(run(TWICE, series={"skill": [0.3] * 50}))


def test_a_loss_that_stays_at_its_floor() -> None:
    explains(run(TWICE, series={"skill": [0.7] * 50}), layer="softmax", step=0, failure="saturated_activations")
