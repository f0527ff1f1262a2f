"""Memory grows with every iteration.

Asked in: pytorch/pytorch#1840, pytorch/pytorch#4420, horovod/horovod#641
What is wrong: the running total keeps each loss as a tensor, and with it the graph that made it. With loss.item() it
would keep a number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    total: Tensor | float = 0.0
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
            total = total + loss  # keeps every loss's graph alive
    print(f"mean loss: {float(torch.as_tensor(total).detach()) / steps:.3f}")
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
