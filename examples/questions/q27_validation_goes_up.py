"""The training loss falls and the validation loss rises.

Asked in: MIC-DKFZ/nnUNet#829, mlfoundations/open_clip#31
What is wrong: a large model learns 64 noisy samples by heart. The training itself is in order, and says nothing about
samples that it has not seen.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4)), nn.Linear(32, 4)
    inputs, unseen = torch.randn(64, 32), torch.randn(256, 32)
    labels = torch.where(torch.rand(64) < 0.4, torch.randint(4, (64,)), teacher(inputs).argmax(1))
    truth = teacher(unseen).argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            model.train()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                model.eval()
                with torch.no_grad():
                    dbg.record_validation_loss(nn.functional.cross_entropy(model(unseen), truth).item())
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
