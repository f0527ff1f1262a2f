"""Which layer made the first NaN? detect_anomaly points at another one.

Asked in: pytorch/pytorch#160016, pytorch/pytorch#1274, pytorch/pytorch#182156, neosr-project/neosr#87
What is wrong: block 2 takes the logarithm of 6 plus its signal. As the weights grow, a sample gets below -6 there: NaN,
which all later blocks only pass on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class Block(nn.Module):
    def __init__(self, logarithm: bool) -> None:
        super().__init__()
        self.mix, self.logarithm = nn.Linear(16, 16), logarithm

    def forward(self, x: Tensor) -> Tensor:
        signal = self.mix(x)
        return x + (torch.log(6.0 + signal) if self.logarithm else torch.tanh(signal))


def main(steps: int = 100) -> NeuralDbg:
    torch.manual_seed(0)
    direction = torch.randn(16, 1)
    model = nn.Sequential(*(Block(number == 2) for number in range(5)), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), inputs @ direction + (inputs @ direction).exp().clamp(max=5))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
