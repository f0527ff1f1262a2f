"""The four trainings that cost is measured on: a model, its batches and one step, the same for every side."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

BATCHES = 8  # made beforehand, so that no step pays for making data


class Transformer(nn.Module):
    """Six encoder layers over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.blocks(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    """Two LSTM layers, read at the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 192, num_layers=2, batch_first=True)
        self.head = nn.Linear(192, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def mlp(width: int = 512, depth: int = 20) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(depth):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 10))


def cnn() -> nn.Module:
    parts: list[nn.Module] = []
    for k, (before, after) in enumerate(zip((3, 32, 32, 64, 64, 128), (32, 32, 64, 64, 128, 128), strict=True)):
        parts += [nn.Conv2d(before, after, 3, stride=1 + k % 2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def own_code(model: nn.Module) -> nn.Module:
    """The model with code of its own: the compiler keeps at most eight variants of one, of all sides together."""
    forward: Any = type(model).forward
    copy = types.FunctionType(
        forward.__code__.replace(), forward.__globals__, "forward", forward.__defaults__, forward.__closure__
    )
    model.__class__ = type(type(model).__name__, (type(model),), {"forward": copy})
    return model


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Tensor]
    rows: int

    def training(self, compiled: bool = False, seed: int = 0) -> Training:
        """A training of its own: every side has its model, its optimizer and the same numbers."""
        torch.manual_seed(seed)
        return Training(self, self.build(), compiled)


class Training:
    """A model that goes one step a call."""

    def __init__(self, workload: Workload, model: nn.Module, compiled: bool) -> None:
        g = torch.Generator().manual_seed(1)
        self.model = own_code(model) if compiled else model
        self.called: Any = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        self.criterion = nn.CrossEntropyLoss()
        self.batches = [
            (workload.batch(g), torch.randint(0, 10, (workload.rows,), generator=g)) for _ in range(BATCHES)
        ]
        self.done = 0

    def forward(self) -> Any:
        x, y = self.batches[self.done % BATCHES]
        self.optimizer.zero_grad()
        return self.criterion(self.called(x), y)

    def step(self) -> Any:
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return loss


def mlp_of(width: int) -> Workload:
    return Workload(f"MLP 20x{width}", lambda: mlp(width), lambda g: torch.randn(64, width, generator=g), 64)


WORKLOADS = (
    mlp_of(512),
    Workload("CNN, six layers", cnn, lambda g: torch.randn(16, 3, 32, 32, generator=g), 16),
    Workload("transformer, six layers", Transformer, lambda g: torch.randint(0, 1000, (8, 32), generator=g), 8),
    Workload("LSTM, two layers", Recurrent, lambda g: torch.randn(32, 32, 32, generator=g), 32),
)
