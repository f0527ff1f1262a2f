"""The job was reported as a success, and every weight of the adapter is NaN.

Asked in: getainode/ainode#186
What is wrong: the adapter divides by the norm of its own output, which is zero at the start, for its second factor
starts at zero. The script runs to its end and exits with 0.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 4, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        change = self.up(self.down(x))
        out: Tensor = self.base(x) + change / change.norm(dim=1, keepdim=True)
        return out


def main(steps: int = 30) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = Adapted(), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    diagnosis = main().diagnose()
    print(diagnosis)
    sys.exit(3 if diagnosis.verdict == "failed" else 0)  # the job is no success
