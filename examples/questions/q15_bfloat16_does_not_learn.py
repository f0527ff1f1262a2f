"""Training in pure bfloat16 does not learn; in float32 it does.

Asked in: pytorch/ao#1124, meta-pytorch/torchtune#2254, Nerogar/OneTrainer#996
What is wrong: bfloat16 keeps 8 bits of a number. An update below 1/512 of a weight rounds to nothing, and at this rate
most of them are.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).bfloat16()
    teacher = nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.bfloat16()).float(), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
