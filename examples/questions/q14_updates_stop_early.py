"""The model stopped updating after 300 steps.

Asked in: jzhang38/EasyContext#21, huggingface/accelerate#2926, allenai/open-instruct#646
What is wrong: the scheduler steps once for each of 4 processes at every optimizer step, so a schedule that was made
for the whole training is at zero after a quarter of it.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 240, processes: int = 4) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), nn.Linear(32, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / steps))
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 32)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
            for _ in range(processes):
                schedule.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
