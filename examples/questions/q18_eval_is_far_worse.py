"""After model.eval() the same model is far worse.

Asked in: pytorch/pytorch#4741, pytorch/pytorch#5406
What is wrong: the batch norms were made with a momentum of 0.001, so after the whole training their running statistics
are still near the initial 0 and 1, unlike those of any batch.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 150) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64, momentum=0.001), nn.ReLU(), nn.Linear(64, 4))
    teacher = nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = 5.0 + 3.0 * torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs - 5.0).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
