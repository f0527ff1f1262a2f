"""A training with a broken sensor inside an offline W&B run: no account, no network, and the run says why it failed.

python examples/wandb_offline.py
wandb sync wandb/offline-run-*    # later, with an account
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import wandb
from torch import nn

import neuraldbg.integrations.wandb

BROKEN_FROM = 120


def train(run: wandb.Run, steps: int = 200) -> None:
    """A linear task whose third input turns NaN in one sample of each batch from step BROKEN_FROM on."""
    torch.manual_seed(0)
    weight = torch.randn(10, 1)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=run.config["lr"])
    for step in range(steps):
        inputs = torch.randn(32, 10)
        targets = inputs @ weight
        if step >= BROKEN_FROM:
            inputs[0, 3] = float("nan")
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()})


def main() -> Path:
    """The folder of the run's report."""
    neuraldbg.integrations.wandb.autolog()  # the only line that a training needs
    with wandb.init(project="neuraldbg-example", mode="offline", config={"lr": 0.01}) as run:
        train(run)
        folder = Path(run.dir) / "neuraldbg"
    return folder


if __name__ == "__main__":
    report = main()
    diagnosis = json.loads((report / "diagnosis.json").read_text())
    top = diagnosis["hypotheses"][0]
    print(f"{diagnosis['verdict']}: {top['cause']} since step {top['step']}")
    print(f"the report: {report / 'report.html'}")
