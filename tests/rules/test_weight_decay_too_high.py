from __future__ import annotations

from functools import partial

from neuraldbg.rules.weight_decay_too_high import weight_decay_too_high
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, weight_decay_too_high)
explains = partial(check_explains, weight_decay_too_high)

SHRINK = observed("weights_shrink", 10, decay_lg=-1.2)
STUCK = observed("loss_plateau", 20, skill=1.0)


def test_weights_may_shrink_while_the_loss_falls() -> None:
    silent(run(SHRINK, series={"skill": [0.97**i for i in range(100)]}))


def test_without_weight_decay_something_else_shrinks_them() -> None:
    silent(run(SHRINK, STUCK, facts=facts(optimizers=(optimizer("SGD"),))))


def test_shrinking_weights_and_a_loss_that_does_not_fall() -> None:
    decayed = facts(optimizers=(optimizer("SGD", weight_decay=1.0),))
    explains(run(SHRINK, STUCK, facts=decayed), step=10, failure="optimizer_instability")
