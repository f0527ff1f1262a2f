from __future__ import annotations

from functools import partial

from neuraldbg.events import recovered
from neuraldbg.rules.frozen_parameters import frozen_parameters
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, frozen_parameters)
explains = partial(check_explains, frozen_parameters)

FROZEN = observed("nothing_trains", 0, "fc", owned=2, owned_trainable=0, frozen=2)


def test_a_loss_that_falls_trains_by_another_way() -> None:
    silent(run(FROZEN, series={"skill": [0.97**i for i in range(100)]}))


def test_parameters_that_start_to_train_are_fine() -> None:
    silent(run(FROZEN, recovered(FROZEN, 10)))


def test_a_head_frozen_with_its_backbone() -> None:
    at_chance = {"skill": [1.0] * 50}
    explains(run(FROZEN, series=at_chance), layer="fc", step=0, failure="vanishing_gradients")
