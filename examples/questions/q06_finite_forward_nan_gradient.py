"""The forward pass is finite and the gradient is NaN.

Asked in: pytorch/pytorch#2421, pytorch/pytorch#68425, pytorch/pytorch#187297
What is wrong: the distance of a pair is a square root, and one pair of the data is twice the same sample: the
derivative of the square root at zero is infinite, times a gradient of zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        difference: Tensor = self.encoder(left) - self.encoder(right)
        return difference.pow(2).sum(1).sqrt()


def main(steps: int = 40, twice: int = 25) -> NeuralDbg:
    torch.manual_seed(0)
    model = Siamese()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            left, right = torch.randn(32, 8), torch.randn(32, 8)
            if step == twice:
                right[3] = left[3]
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(left, right), (left - right).norm(dim=1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
