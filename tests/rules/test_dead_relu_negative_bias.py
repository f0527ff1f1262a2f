from __future__ import annotations

from functools import partial

from neuraldbg.rules.dead_relu_negative_bias import dead_relu_negative_bias
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, dead_relu_negative_bias)
explains = partial(check_explains, dead_relu_negative_bias)

BIAS = observed("negative_bias", 0, "top.0", ratio=-0.98, next="top.1")
DEAD = observed("dead_units", 0, "top.1", share=1.0, at_start=1.0)


def test_a_dead_layer_without_the_bias_is_another_cause() -> None:
    silent(run(DEAD, observed("loss_plateau", 0, skill=1.0)))


def test_a_bias_that_the_training_overcomes_is_nothing() -> None:
    silent(run(BIAS, series={"skill": [0.97**i for i in range(100)]}))


def test_a_bias_that_keeps_a_layer_silent() -> None:
    explains(run(BIAS, DEAD, observed("loss_plateau", 0, skill=1.0)), layer="top.0", step=0, failure="dead_neurons")
