"""A net, a loop and their gradients, for tests of the rows of docs/design/patterns.md."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def batch(rows=6):
    return torch.randn(rows, 4)


def train(model, steps=4, called=None, opt=None, before=None):
    """A plain loop; gives the RMS of every gradient at each step."""
    called = called or model
    opt = opt or torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for _ in range(steps):
        if before is not None:
            before()
        opt.zero_grad()
        called(batch()).square().mean().backward()
        seen.append({n: rms(p.grad) for n, p in model.named_parameters() if p.grad is not None})
        opt.step()
    return seen


def rms(x):
    x = x.coalesce().values() if x.is_sparse else x
    return x.detach().double().square().mean().sqrt().item()


def gradients(record):
    return {n: p.gradient for n, p in record.parameters.items() if p.gradient is not None}


def close(a, b):
    return a == pytest.approx(b, rel=1e-4)


def close_dict(values):
    return {name: pytest.approx(value, rel=1e-4) for name, value in values.items()}


class Plain(nn.Module):
    """Any forward over named parts."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args):
        return self.run(self, *args)
