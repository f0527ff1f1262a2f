"""Three short trainings: one that is healthy, one with a NaN in a batch, one whose rate is far too high."""

from __future__ import annotations

import mlflow
import torch
from torch import nn

STEPS = 60
BROKEN = 25


def train(kind: str, steps: int = STEPS, after: int = -1, then: object = None) -> None:
    """A plain loop. then: called once, after step `after`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    weight = torch.randn(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=300.0 if kind == "rate" else 0.05)
    for step in range(steps):
        x = torch.randn(64, 8)
        y = x @ weight
        if kind == "nan" and step >= BROKEN:
            x[0, 0] = torch.nan
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step == after and callable(then):
            then()


def run(kind: str) -> str:
    """The training in a run of its own; the run's id."""
    with mlflow.start_run(run_name=kind) as active:
        train(kind)
    return str(active.info.run_id)
