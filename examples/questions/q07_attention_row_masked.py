"""Attention gives NaN as soon as there is padding.

Asked in: pytorch/pytorch#103749, pytorch/pytorch#110213, huggingface/transformers#38690
What is wrong: one sequence of the batch is empty, so its rows of the attention scores are masked at every position,
and a softmax over nothing but -inf is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4.0
        padding = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
        weights = self.softmax(scores.masked_fill(padding[:, None, :], float("-inf")))
        out: Tensor = self.head((weights @ self.value(x)).mean(1))
        return out


def main(steps: int = 40, empty: int = 12) -> NeuralDbg:
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            x, lengths = torch.randn(16, 6, 16), torch.randint(2, 7, (16,))
            if step == empty:
                lengths[5] = 0
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x, lengths), (x.mean((1, 2)) > 0).long())
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
