"""A training in which a replay took place goes on as if there had been none: the same to the bit."""

from __future__ import annotations

import contextlib
import random

import numpy
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.watch import held, rerun


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Busy(nn.Module):
    """Draws from every generator, keeps running statistics, a counter, a list and a hidden state, and fails once."""

    def __init__(self, bad):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3))
        self.bad, self.calls, self.seen, self.hidden = bad, 0, [], None

    def forward(self, x, fail):
        self.calls += 1
        self.seen.append(float(x.sum()))
        h = self.inner(x) * (1 + 0.1 * random.random() + 0.1 * numpy.random.rand())
        h, self.hidden = self.rnn(h[:, None])
        y = self.out(h[:, 0])
        return torch.where(self.bad(y) == y, y, y) + (self.bad(y) * 0 if fail else 0)


def busy(watched, bad, accumulate, **settings):
    """Five steps of which the third is not finite and is left out, as careful loops do; gives everything that moved."""
    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    net = Busy(bad)
    touched = []
    net.out.parametrizations.weight.original.register_hook(lambda grad: touched.append(float(grad.abs().sum())))
    net.out.bias.register_post_accumulate_grad_hook(lambda p: touched.append(float(p.grad.abs().sum())))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    dbg = NeuralDbg(net, **settings) if watched else None
    losses = []
    if dbg:
        dbg.__enter__()
    for step in range(5):
        for _ in range(accumulate):
            loss = net(torch.rand(6, 3), step == 2).pow(2).mean()
            loss.backward()
            losses.append(loss.item())
        grads = [p.grad.clone() for p in net.parameters()]
        if all(g.isfinite().all() for g in grads):
            optimizer.step()
        optimizer.zero_grad()
    if dbg:
        dbg.finish()
    drawn = (torch.rand(3), random.random(), numpy.random.rand())
    return net, dbg, (net.state_dict(), losses, drawn, net.calls, net.seen, net.hidden, grads, touched)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) or bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("bad", [lambda y: torch.log(-y.abs() - 1), lambda y: torch.sqrt(y.abs() * 0)])
def test_the_training_is_the_same_to_the_bit(bad, accumulate):
    _, _, bare = busy(False, bad, accumulate)
    net, dbg, watched = busy(True, bad, accumulate)
    assert [k for k, (a, b) in enumerate(zip(bare, watched, strict=True)) if not same(a, b)] == []
    assert any(e.metadata.get("operator") for e in dbg.diagnose().events), dbg.diagnose().facts.coverage.notes
    assert type(net.hidden) is tuple and net.out.bias.grad is None


@pytest.mark.parametrize(
    ("place", "name", "instead"),
    [(rerun, "_generators", contextlib.nullcontext), (held, "_refill", lambda *args: None)],
)
def test_what_is_not_put_back_would_be_noticed(monkeypatch, place, name, instead):
    def bad(y):
        return torch.sqrt(y.abs() * 0)

    _, _, bare = busy(False, bad, 1)
    monkeypatch.setattr(place, name, instead)
    _, _, watched = busy(True, bad, 1)
    assert not all(same(a, b) for a, b in zip(bare, watched, strict=True))


def test_an_optimizer_that_steps_inside_backward_steps_once():
    def run(watched):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.2))
        steps = []
        own = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

        def step(p):
            steps.append(float(p.grad.nan_to_num(0.0, 0.0, 0.0).sum()))
            own[p].step()
            own[p].zero_grad()

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(step)
        with NeuralDbg(net) if watched else contextlib.nullcontext():
            for k in range(3):
                torch.sqrt(net(torch.rand(4, 3)).abs().sum() * (k != 1)).backward()
        return steps, list(net.parameters())

    assert same(run(False), run(True))


def test_it_runs_inside_no_grad_of_nobody_and_leaves_the_mode_alone():
    net = nn.Sequential(nn.Linear(3, 3))
    with NeuralDbg(net) as dbg:
        loss = torch.log(net(torch.rand(4, 3)) * 0).mean()
        with torch.no_grad():
            loss.backward()
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled()
    assert dbg.diagnose().events[0].metadata["operator"] == "log"
