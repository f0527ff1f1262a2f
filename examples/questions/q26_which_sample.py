"""Which sample made the NaN?

Asked in: dusty-nv/jetson-inference#1629, Deci-AI/super-gradients#1342
What is wrong: row 321 of the data set has a NaN in column 3. Its epoch is shuffled, so the row is somewhere in the
middle of an arbitrary batch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import NeuralDbg


def main(epochs: int = 2) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(8, 4)
    samples = torch.randn(512, 8)
    labels = teacher(samples).argmax(1)
    samples[321, 3] = float("nan")
    loader = DataLoader(TensorDataset(samples, labels), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
