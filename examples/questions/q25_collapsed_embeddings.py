"""All my embeddings are the same vector.

Asked in: PatrickHua/SimSiam#50, molecularsets/moses#45, pytorch/torchtitan#1246
What is wrong: two views of a sample are pulled together and nothing pulls different samples apart: there is no stop of
the gradient on one side and no predictor. A constant answer is the best one.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 400) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            sample = torch.randn(64, 32)
            one, other = sample + 0.3 * torch.randn(64, 32), sample + 0.3 * torch.randn(64, 32)
            optimizer.zero_grad()
            loss = (model(one) - model(other)).pow(2).mean()
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
