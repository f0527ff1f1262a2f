"""What the tests of the Trainer of transformers train: a small model, data in its order, some of it broken."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import Trainer

ROWS, BATCH = 192, 8
STEPS = ROWS // BATCH


class Net(nn.Module):
    """A model as Trainer takes it: it gives its loss. told: norms of the gradient after each backward pass."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.fails_at, self.calls = fails_at, 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += self.training
        if self.calls == self.fails_at:
            raise ValueError("a batch that the user did not expect")
        out = self.body(x)
        return {"loss": F.cross_entropy(out, labels), "logits": out}


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, broken: int | None = None) -> None:
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(ROWS, 6, generator=g)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 1).long()
        if broken is not None:
            self.x[BATCH * broken + 3, 2] = math.nan

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[k], "labels": self.y[k]}


class InOrder(Trainer):  # type: ignore[misc]
    """The batches come in the data's order, so that a plain loop can have the same."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(range(ROWS))
