"""A plain PyTorch loop that fails, and the one `with` that says why.

The rate is ten times what this model bears: the loss jumps instead of falling.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(rate: float = 3.0, steps: int = 200) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    teacher = nn.Linear(20, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 20)
            labels = teacher(inputs).argmax(1)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
