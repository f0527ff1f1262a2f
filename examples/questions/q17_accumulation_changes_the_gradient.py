"""With gradient accumulation the loss and the gradients have another size.

Asked in: huggingface/transformers#37766, axolotl-ai-cloud/axolotl#3196
What is wrong: the losses of 16 micro-batches are added up and not divided by 16, so the gradient, and with SGD every
update, is sixteen times as large as the rate was chosen for.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 70, accumulated: int = 16) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)), nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(accumulated):
                inputs = torch.randn(8, 16)
                loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
                loss.backward()  # the missing part: (loss / accumulated).backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
