"""Is a grad_norm of 11140 normal?

Asked in: huggingface/transformers#45676, unslothai/unsloth#5207, facebookresearch/metaquery#6, allenai/OLMo#596
What is wrong: nothing here. One batch has a loss that is weighted a thousandfold; the norm is clipped to 1, the loss
of the next batches is as before, and there is nothing to do.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200, heavy: int = 120) -> NeuralDbg:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    teacher = nn.Linear(20, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    norms: list[float] = []
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            inputs = torch.randn(64, 20)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            (loss * (30_000.0 if step == heavy else 1.0)).backward()
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            dbg.record_loss(loss.item())
    print(f"largest grad_norm: {max(norms):.0f}")
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
