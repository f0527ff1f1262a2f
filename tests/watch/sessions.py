"""A small regression and the hooks left on a model, for tests of sessions."""

from __future__ import annotations

import torch
from torch import nn


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model, steps=6, tell=None, broken_at=None):
    """A plain regression; `broken_at`: the step whose input has the wrong width."""
    g = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(16, 4, generator=g)
        optimizer.zero_grad()
        loss = (model(x[:, :3] if step == broken_at else x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        if tell is not None:
            tell(loss.item())
    return [p.detach().clone() for p in model.parameters()]


def hooks_of(model):
    parts = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return parts + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())
