"""The loss is NaN on many GPUs only, or on one node only. Which rank was it?

Asked in: pytorch/torchtitan#951, hpcaitech/ColossalAI#6091, microsoft/dion#76
What is wrong: one device computes NaN from a healthy batch. The average of the gradients carries it to all ranks within
the same step, so that every rank looks guilty afterwards.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class Layer(nn.Linear):
    """A layer on a device that breaks: from some call on it gives NaN."""

    calls, broken = 0, False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out = super().forward(x)
        return out * float("nan") if self.broken and self.calls > 30 else out


def main(steps: int = 60, ranks: int = 3) -> NeuralDbg:
    torch.manual_seed(0)
    first, teacher = nn.Sequential(Layer(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(16, 4)
    replicas = [copy.deepcopy(first) for _ in range(ranks)]  # in one process here, a session watches them all
    replicas[1][0].broken = True  # type: ignore[assignment]
    optimizers = [torch.optim.SGD(replica.parameters(), lr=0.1) for replica in replicas]
    with NeuralDbg({f"rank{number}": replica for number, replica in enumerate(replicas)}) as dbg:
        for _ in range(steps):
            for replica in replicas:
                replica.zero_grad()
                inputs = torch.randn(32, 16)
                nn.functional.cross_entropy(replica(inputs), teacher(inputs).argmax(1)).backward()
            for same in zip(*(replica.parameters() for replica in replicas), strict=True):  # the all-reduce
                mean = torch.stack([p.grad for p in same if p.grad is not None]).mean(0)
                for p in same:
                    p.grad = mean.clone()
            for optimizer in optimizers:
                optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
