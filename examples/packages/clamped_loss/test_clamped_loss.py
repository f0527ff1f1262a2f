"""The rule blames a clamp where nothing else can have cut the gradient, and is silent elsewhere."""

from __future__ import annotations

from functools import partial

import torch
from neuraldbg_clamped_loss import clamped_loss
from torch import nn

from neuraldbg import Diagnosis, NeuralDbg
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, clamped_loss)
explains = partial(check_explains, clamped_loss)

whole = module("", 9, kind="Sequential", parameters=0)
linear = facts(whole, module("0"), module("1", 1, "relu"), module("2", 2))
rectified = facts(whole, module("0"), module("1", 1, "relu"))
cut, stuck = observed("zero_gradient", 3, "2"), observed("loss_plateau", 40)


def test_a_loss_that_stays_while_the_gradient_flows_is_nothing() -> None:
    silent(run(stuck, facts=linear))


def test_a_gradient_of_zero_at_the_floor_of_the_loss_is_nothing() -> None:
    silent(run(cut, facts=linear))


def test_a_gradient_that_is_zero_further_down_has_another_reason() -> None:
    silent(run(observed("zero_gradient", 3, "0"), stuck, facts=linear))


def test_an_activation_at_the_end_may_have_cut_the_gradient_itself() -> None:
    silent(run(observed("zero_gradient", 3, "0"), observed("zero_gradient", 3, "1"), stuck, facts=rectified))


def test_a_gradient_that_nothing_else_can_have_cut_is_blamed_on_the_loss() -> None:
    explains(run(cut, stuck, facts=linear), layer="2", step=3, failure="vanishing_gradients")


def trained(limit: float) -> Diagnosis:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for _ in range(120):
            inputs = torch.randn(16, 4)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().clamp(max=limit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    return dbg.diagnose()


def test_a_real_training_below_its_clamp_is_healthy() -> None:
    assert trained(limit=100.0).verdict == "healthy"


def test_a_real_training_above_its_clamp_is_told() -> None:
    diagnosis = trained(limit=0.5)
    assert diagnosis.verdict == "failed" and diagnosis.top is not None
    assert (diagnosis.top.cause, diagnosis.top.layer_name, diagnosis.top.step) == ("clamped_loss", "2", 0)
