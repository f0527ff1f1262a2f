"""DDP stops: "parameters that were not used in producing loss". Which ones?

Asked in: pytorch/pytorch#43259
What is wrong: the model has an auxiliary head whose output the loss does not use, so its two parameters get no
gradient, and DDP waits for them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.main, self.auxiliary = nn.Linear(32, 4), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.body(x))
        return self.main(hidden), self.auxiliary(hidden)


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = TwoHeads(), nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            answer, _ = model(inputs)
            loss = nn.functional.cross_entropy(answer, teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
