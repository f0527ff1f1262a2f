"""With checkpointing: "None of the inputs have requires_grad=True. Gradients will be None".

Asked in: huggingface/transformers#21381, huggingface/transformers#23170
What is wrong: the embedding is frozen and the blocks behind it run inside a re-entrant checkpoint. Its input needs no
gradient, so nothing inside gets one.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg


class Tuned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(16, 32).requires_grad_(False)
        self.blocks = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.blocks, self.embedding(x), use_reentrant=True)
        out: Tensor = self.head(hidden)
        return out


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = Tuned(), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    with NeuralDbg(model) as dbg, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the message of the question
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
