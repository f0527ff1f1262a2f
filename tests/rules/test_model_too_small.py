from __future__ import annotations

import pytest

from neuraldbg.record import RunFacts
from neuraldbg.rules.model_too_small import model_too_small
from neuraldbg.run import Run
from neuraldbg.testing import facts, module, observed, run


def net(width: int = 64, out: int = 10, activation: str = "relu", **more: object) -> RunFacts:
    layers = [module("fc1", 0, width=width), module("fc2", 2, width=out, position="output")]
    return facts(*layers, *([module("act", 1, activation)] if activation else []), **more)  # type: ignore[arg-type]


def at(level: float, known: RunFacts) -> Run:
    return run(facts=known, series={"skill": [1.0] * 20 + [level] * 180}, steps=200)


@pytest.mark.parametrize(
    "fine",
    [
        at(0.5, net()),
        at(0.5, net(width=4, out=2)),
        at(0.05, net(width=2)),
        at(0.97, net(width=2)),
        at(0.5, net(width=2, structure=("attention",))),
        run(facts=net(width=2), series={"skill": [0.99**k + 0.2 for k in range(200)]}),
        run(observed("loss_plateau", 0), facts=net(width=2), series={"skill": [0.5] * 200}),
    ],
    ids=["wide", "wide enough for two", "learned", "nothing learned", "attention", "falling", "stuck"],
)
def test_other_models_are_not_too_small(fine: Run) -> None:
    assert list(model_too_small(fine)) == []


def test_a_bottleneck_is_named_with_its_width_and_the_level() -> None:
    (claim,) = model_too_small(at(0.5, net(width=2)))
    assert (claim.layer_name, claim.advice, claim.outcome) == ("fc1", True, False)
    assert claim.summary == "all of it passes through the 2 units of this layer; the loss has settled at 50% of chance"


def test_a_model_without_an_activation_is_linear() -> None:
    (claim,) = model_too_small(at(0.5, net(activation="")))
    assert claim.layer_name is None and "it is linear" in claim.summary
