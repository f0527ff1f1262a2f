from __future__ import annotations

from functools import partial

from neuraldbg.record import RunFacts
from neuraldbg.rules.saturating_activations_deep import saturating_activations_deep
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, saturating_activations_deep)
explains = partial(check_explains, saturating_activations_deep)


def deep(count: int, kind: str = "sigmoid") -> RunFacts:
    names = [m for i in range(count) for m in (module(f"lin{i}", 2 * i), module(f"act{i}", 2 * i + 1, kind))]
    return facts(*names, module("out", 2 * count, position="output"))


SHRINKS = observed("vanishing_with_depth", 0, "lin0", slope=0.7, first_last_lg=-6.0)
STUCK = observed("loss_plateau", 0, skill=1.0)


def test_a_steep_gradient_with_a_falling_loss_is_healthy() -> None:
    silent(run(SHRINKS, facts=deep(8), series={"skill": [0.97**i for i in range(100)]}))


def test_three_bounded_layers_are_not_deep() -> None:
    silent(run(SHRINKS, STUCK, facts=deep(3)))


def test_rectified_layers_do_not_shrink_the_gradient() -> None:
    silent(run(SHRINKS, STUCK, facts=deep(8, "relu")))


def test_weights_that_shrink_the_signal_are_the_deeper_cause() -> None:
    silent(run(observed("small_weights", 0, "lin0", gain_lg=-1.1), SHRINKS, STUCK, facts=deep(8)))


def test_eight_sigmoid_layers_at_chance() -> None:
    explains(run(SHRINKS, STUCK, facts=deep(8)), layer="act0", step=0, failure="vanishing_gradients")
