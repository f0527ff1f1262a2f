"""The validation loss that a user records: one point a call, at the step it follows, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg


def train(dbg: NeuralDbg, model: nn.Module, steps: int, every: int, told: bool) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(torch.randn(8, 3)), torch.randn(8, 1))
        loss.backward()
        optimizer.step()
        if told:
            dbg.record_loss(loss.item())
        if step % every == every - 1:
            dbg.record_validation_loss(float(step))


@pytest.mark.parametrize("told", [False, True], ids=["loss seen", "loss recorded"])
@pytest.mark.parametrize("settings", [{}, {"cadence": 7}], ids=["dense", "every seventh step"])
def test_each_call_is_a_point_at_its_step(told: bool, settings: dict[str, Any]) -> None:
    model = nn.Linear(3, 1)
    with NeuralDbg(model, **settings) as dbg:
        train(dbg, model, steps=30, every=10, told=told)
    assert dbg.diagnose().series["validation"] == ((9, 9.0), (19, 19.0), (29, 29.0))
    assert dbg.diagnose().steps == 30


def test_a_tensor_is_taken_as_it_is() -> None:
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        train(dbg, model, steps=3, every=10, told=False)
        dbg.record_validation_loss(torch.tensor(0.5, requires_grad=True))
    assert [v for _, v in dbg.diagnose().series["validation"]] == [0.5]


@pytest.mark.parametrize("bad", [None, "0.3", torch.zeros(2)])
def test_what_is_no_number_is_refused_by_the_name_of_the_method(bad: Any) -> None:
    with NeuralDbg(nn.Linear(3, 1)) as dbg, pytest.raises(TypeError, match=r"^record_validation_loss takes"):
        dbg.record_validation_loss(bad)


def test_before_and_after_the_session_it_is_nothing() -> None:
    dbg = NeuralDbg(nn.Linear(3, 1))
    dbg.record_validation_loss(1.0)
    with dbg:
        pass
    dbg.record_validation_loss(1.0)
    assert "validation" not in dbg.diagnose().series
