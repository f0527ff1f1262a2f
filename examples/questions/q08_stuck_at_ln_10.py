"""The loss is stuck at 2.3026 on ten classes.

Asked in: jiecaoyu/pytorch-nin-cifar10#1, soumith/imagenet-multiGPU.torch#2, facebookresearch/moco#12
What is wrong: the first updates at a rate of 1 throw the weights so far that the rectifiers die; what is left is one
answer for every image, and a loss of ln 10.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200, rate: float = 1.0) -> NeuralDbg:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            batch = torch.randint(len(images), (64,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
