"""The loss is NaN in fine-tuning although the data looks fine.

Asked in: huggingface/trl#6668, nvidia-cosmos/cosmos-rl#155, NVIDIA-NeMo/Automodel#3797
What is wrong: in one batch the answers were truncated away, so every label is the one that the loss ignores, and the
mean is taken over nothing.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 40, empty: int = 17) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 50))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            tokens = torch.randint(50, (8, 12))
            labels = (tokens + 1) % 50
            labels[:, : 12 if step == empty else 6] = -100  # the prompt does not count
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
