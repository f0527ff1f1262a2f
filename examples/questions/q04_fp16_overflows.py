"""float16 gives NaN where float32 and bfloat16 are fine.

Asked in: huggingface/transformers#5651, huggingface/transformers#9295, huggingface/transformers#10956
What is wrong: a gated feed-forward layer multiplies two activations; their product grows with the data
and passes 65504, the largest number of float16.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class GatedFeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(16, 64), nn.Linear(16, 64)
        self.product = nn.Identity()  # a name for the place
        self.norm = nn.LayerNorm(64)
        self.down = nn.Linear(64, 4)
        nn.init.normal_(self.gate.weight, std=12.0)  # pretrained weights with a few large products
        nn.init.normal_(self.up.weight, std=12.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.norm(self.product(self.gate(x) * self.up(x))))
        return out


def main(steps: int = 80) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = GatedFeedForward().half(), nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            inputs = torch.randn(64, 16) * (1.0 + 0.01 * step)  # the sequences get longer
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.half()).float(), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
