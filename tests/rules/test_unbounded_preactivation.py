from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.unbounded_preactivation import unbounded_preactivation
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, optimizer, run

silent = partial(check_silent, unbounded_preactivation)
explains = partial(check_explains, unbounded_preactivation)

MODEL = facts(
    module("body", 0),
    module("relu", 1, "relu"),
    module("squash", 2, "tanh"),
    module("critic", 3, source="squash"),
    optimizers=(optimizer(), optimizer()),
)


def pinned(step: int = 4, **changes: Any) -> SemanticEvent:
    given = {"share": 0.95, "function": "tanh", "position": "hidden", "at_start": False, **changes}
    return observed("saturation", step, "squash", **given)


def test_a_share_that_healthy_layers_reach_is_nothing() -> None:
    silent(run(pinned(share=0.3), facts=MODEL))


def test_the_last_layer_of_a_classifier_is_meant_to_saturate() -> None:
    single = facts(module("body", 0), module("squash", 1, "sigmoid", position="output"), optimizers=(optimizer(),))
    silent(run(pinned(position="output", function="sigmoid"), facts=single))


def test_raw_inputs_saturate_the_first_layer_at_once() -> None:
    first = facts(module("lin", 0), module("squash", 1, "tanh"), module("out", 2, source="squash"))
    silent(run(pinned(0, at_start=True), facts=first))


def test_one_network_that_learns_may_fill_a_layer_half() -> None:
    single = facts(module("lin", 0), module("squash", 1, "tanh"), module("out", 2, source="squash"))
    silent(run(pinned(share=0.6), facts=single, series={"skill": [0.97**i for i in range(100)]}))


def test_an_actor_that_fills_up() -> None:
    explains(run(pinned(), facts=MODEL), layer="squash", step=4, failure="saturated_activations")
