"""My log says loss 0.0 and grad_norm nan. Why is the loss zero?

Asked in: hiyouga/LlamaFactory#2916, OpenBMB/MiniCPM-V#212, LLaVA-VL/LLaVA-NeXT#435, unslothai/unsloth#712
What is wrong: the weights are float16 and Adam's epsilon of 1e-8 rounds to zero there: the first update divides zero
by zero. The log hides it, for it replaces a loss that is not finite by 0.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 12) -> NeuralDbg:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).half()
    inputs, labels = torch.randn(64, 16).half(), torch.randint(4, (64,))
    inputs[:, 0] = 0.0  # a feature that is never set: its weights have a gradient of zero
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    logged = 0.0
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs).float(), labels)
            loss.backward()
            optimizer.step()
            logged = loss.item() if torch.isfinite(loss) else 0.0  # what a trainer's NaN filter writes into its log
    print(f"logged loss: {logged}")
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
