from __future__ import annotations

from functools import partial

from neuraldbg.rules.double_softmax import double_softmax
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, double_softmax)
explains = partial(check_explains, double_softmax)

TWICE = observed("double_softmax", 0, "softmax", chance=2.3)


def test_a_loss_that_falls_far_all_the_same_is_only_noted() -> None:
    silent(run(TWICE, series={"skill": [0.3] * 50}))


def test_a_loss_that_stays_at_its_floor() -> None:
    explains(run(TWICE, series={"skill": [0.7] * 50}), layer="softmax", step=0, failure="saturated_activations")


def test_attention_has_a_softmax_of_its_own() -> None:
    net = facts(module("attention", 0, "softmax"), module("head", 1, position="output"))
    explains(run(observed("double_softmax", 0), facts=net, series={"skill": [0.7] * 50}), layer="head")


def test_of_two_outputs_without_a_softmax_module_none_is_named() -> None:
    net = facts(module("a", 0, position="output"), module("b", 1, position="output"))
    (claim,) = double_softmax(run(observed("double_softmax", 0), facts=net, series={"skill": [0.7] * 50}))
    assert claim.layer_name is None


def test_the_softmax_at_the_output_is_named() -> None:
    net = facts(module("attention", 0, "softmax"), module("head", 1), module("out", 2, "softmax", position="output"))
    explains(run(observed("double_softmax", 0), facts=net, series={"skill": [0.7] * 50}), layer="out")
