"""My regression predicts the same value for everything.

Asked in: WeiTang114/MVCNN-TensorFlow#14, ProteomicsML/ProteomicsML#203
What is wrong: there is a ReLU behind the output layer and the targets are centred on zero: it cannot give the negative
half, and where it is off it passes no gradient.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.ReLU())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 8)
            target = inputs[:, :1] - 1.5  # standardised retention times, most of them negative
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
