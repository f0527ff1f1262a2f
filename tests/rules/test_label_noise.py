from __future__ import annotations

import pytest

from neuraldbg.reasoning import diagnose
from neuraldbg.record import RunFacts
from neuraldbg.rules.label_noise import label_noise
from neuraldbg.run import Run
from neuraldbg.testing import facts, module, observed, run


def net(width: int = 64, kind: str = "nll") -> RunFacts:
    layers = (module("fc1", 0, width=width), module("act", 1, "relu"), module("fc2", 2, width=10, position="output"))
    return facts(*layers, loss_kind=kind)


def at(level: float, known: RunFacts) -> Run:
    return run(facts=known, series={"skill": [1.0] * 20 + [level] * 180, "loss": [2.0] * 200}, steps=200)


@pytest.mark.parametrize(
    "other",
    [
        at(0.05, net()),
        at(0.97, net()),
        at(0.5, net(kind="mse")),
        at(0.5, net(width=2)),
        run(observed("rate_zero", 50), facts=net(), series={"skill": [0.5] * 200}),
        run(facts=net(), series={"skill": [0.995**k for k in range(200)]}),
        run(facts=net(), series={"skill": [0.5] * 40}),
    ],
    ids=["learned", "at chance", "regression", "narrow", "no rate", "falling", "short"],
)
def test_where_something_else_may_hold_the_loss_nothing_is_said_of_labels(other: Run) -> None:
    assert list(label_noise(other)) == []


def test_a_loss_that_rests_above_zero_is_told_with_its_level_as_the_weakest_note() -> None:
    (claim,) = label_noise(at(0.6, net()))
    assert claim.advice and not claim.outcome and "60% of chance" in claim.summary
    said = diagnose(at(0.6, net()))
    assert said.verdict == "healthy"
    assert [n.cause for n in said.notes] == ["label_noise"] and said.notes[0].confidence < 0.5
