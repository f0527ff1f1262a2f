"""The loss spikes when I resume from a checkpoint.

Asked in: Lightning-AI/pytorch-lightning#10766, huggingface/transformers#33336, NVIDIA-NeMo/Automodel#763
What is wrong: the checkpoint holds the weights alone. Adam starts again without its moments and takes its first steps
at the full rate, which trained weights do not bear.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def build(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, teacher: nn.Module) -> None:
    inputs = torch.randn(64, 32)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), teacher(inputs))
    loss.backward()
    optimizer.step()


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = build(128), build(8).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50) * 0.985**step)
    for _ in range(300):
        train(model, optimizer, teacher)
        schedule.step()
    checkpoint = model.state_dict()  # and neither optimizer.state_dict() nor schedule.state_dict()

    resumed = build(128)
    resumed.load_state_dict(checkpoint)
    optimizer = torch.optim.Adam(resumed.parameters(), lr=1e-2)
    with NeuralDbg(resumed) as dbg:
        for _ in range(steps):
            train(resumed, optimizer, teacher)
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
