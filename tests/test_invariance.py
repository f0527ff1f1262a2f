"""Where the training itself does not change, neither does the verdict: the loss's scale, the size of a batch.

The loss times c under Adam (its eps times c too) moves the weights as before, and so it does under SGD with the rate
divided by c; a batch of 16 or of 1024 of a healthy problem is healthy.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg

FACTORS = [1e-3, 1.0, 1e3, 1e6]
STEPS = 120


def shallow():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def deep_sigmoid():
    layers = [nn.Linear(10, 32), nn.Sigmoid()]
    for _ in range(9):
        layers += [nn.Linear(32, 32), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(32, 3))


def train(make, optimizer, rate, factor=1.0, rows=32, told=True):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make()
    g = torch.Generator().manual_seed(1)
    centres = torch.randn(3, 10, generator=g) * 1.5
    if optimizer == "adam":
        opt = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-8 * factor)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=rate / factor)
    with NeuralDbg(model) as dbg:
        for _ in range(STEPS):
            y = torch.randint(0, 3, (rows,), generator=g)
            x = centres[y] + torch.randn(rows, 10, generator=g)
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y) * factor
            loss.backward()
            opt.step()
            if told:
                dbg.record_loss(loss.item())
    diagnosis = dbg.diagnose()
    top = diagnosis.top
    return str(diagnosis.verdict), top.cause if top else None


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 1e-2), ("sgd", 0.2)])
def test_a_healthy_run_is_healthy_whatever_its_loss_is_multiplied_by(optimizer, rate, factor):
    assert train(shallow, optimizer, rate, factor) == ("healthy", None)


@pytest.mark.parametrize("factor", [1e-3, 1e6])
def test_so_it_is_where_the_loss_is_not_recorded(factor):
    assert train(shallow, "sgd", 0.2, factor, told=False) == ("healthy", None)


@pytest.mark.parametrize("rows", [16, 128, 1024])
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 1e-2), ("sgd", 0.2)])
def test_a_healthy_run_is_healthy_whatever_the_size_of_its_batches(optimizer, rate, rows):
    assert train(shallow, optimizer, rate, rows=rows) == ("healthy", None)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 1e-3), ("sgd", 0.1)])
def test_a_deep_stack_of_sigmoids_fails_by_them_whatever_its_loss_is_multiplied_by(optimizer, rate, factor):
    assert train(deep_sigmoid, optimizer, rate, factor) == ("failed", "saturating_activations_deep")


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 3.0), ("sgd", 100.0)])
def test_a_rate_that_is_too_high_is_to_blame_whatever_the_loss_is_multiplied_by(optimizer, rate, factor):
    assert train(shallow, optimizer, rate, factor) == ("failed", "learning_rate_too_high")
