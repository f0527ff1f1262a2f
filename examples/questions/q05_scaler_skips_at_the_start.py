"""With AMP the gradients are infinite in the first steps. Is my loss broken?

Asked in: Lightning-AI/pytorch-lightning#9799, Lightning-AI/pytorch-lightning#18828
What is wrong: nothing. The scaler starts from a scale that is too large on purpose, skips the steps that overflow and
halves the scale until the gradients fit.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 150) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    teacher = nn.Linear(20, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 20)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
