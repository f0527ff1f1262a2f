"""The loss falls at first, then it climbs.

Asked in: IBM/aihwkit#446, pytorch/pytorch#47175
What is wrong: zero_grad() is never called, so each update uses the sum of all gradients so far.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
