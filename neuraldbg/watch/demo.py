"""`neuraldbg demo`: a training that goes wrong within seconds. A plain loop; the line that breaks it is marked."""

from __future__ import annotations

import torch
from torch import nn


def main(steps: int = 200, breaks_at: int = 120) -> None:
    """Learn the sum of ten numbers; from one step on a sensor sends NaN."""
    torch.set_num_threads(1)  # matrices this small get slower with more
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        inputs = torch.randn(32, 10)
        target = inputs.sum(1, keepdim=True)
        if step >= breaks_at:
            inputs[0, 3] = float("nan")  # the broken sensor
        loss = nn.functional.mse_loss(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
