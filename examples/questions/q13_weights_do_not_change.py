"""My weights do not change, though the gradients are there.

Asked in: https://discuss.pytorch.org/t/63191, https://discuss.pytorch.org/t/22126, https://discuss.pytorch.org/t/9809
What is wrong: a layer was replaced after the optimizer had been built, which goes on updating the old one.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model[0] = nn.Linear(16, 32)  # a fresh first layer, unknown to the optimizer
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
