"""The more GPUs I use, the worse the model gets.

Asked in: OpenTSLM/OpenTSLM#49, kohya-ss/sd-scripts#924
What is wrong: the loss is computed on the module inside DistributedDataParallel. Its gradients are then never averaged,
and each rank trains a model of its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from neuraldbg import NeuralDbg


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{Path(folder) / 'store'}"
        dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)  # one rank of the job
        try:
            return train(DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))), steps)
        finally:
            dist.destroy_process_group()


def train(model: DistributedDataParallel, steps: int) -> NeuralDbg:
    teacher = nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model.module(inputs), teacher(inputs).argmax(1))  # not model(inputs)
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
