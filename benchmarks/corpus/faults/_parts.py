"""Small modules and helpers that faults put into programs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.corpus.plan import Label, Plan

INSTABILITY = "optimizer_instability"
EXPLODING, VANISHING = "exploding_gradients", "vanishing_gradients"
DEAD, SATURATED, DATA = "dead_neurons", "saturated_activations", "data_anomaly"


def start(plan: Plan) -> int:
    """Where a late fault begins; it differs from seed to seed."""
    return int(plan.steps * (0.3 + 0.08 * (plan.seed % 4)))


def said(cause: str, *failures: str, layers: tuple[str, ...] = (), onset: tuple[int, int]) -> Label:
    return Label((cause,), failures, layers, onset)


def swap(plan: Plan, name: str, make: Callable[[nn.Module], nn.Module]) -> None:
    """Put another module in the place of the one with this name."""
    model, path = plan.model, name
    if len(plan.models) > 1:
        first, _, path = name.partition(".")
        model = plan.models[first]
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, make(model.get_submodule(path)))


def front(plan: Plan, module: nn.Module) -> None:
    """Put a module before the only model; it is named "0" then, and the model "1"."""
    (name, model), *_ = plan.models.items()
    plan.models[name] = nn.Sequential(module, model)


class Detach(nn.Module):
    """Cuts the graph, from a given call on."""

    def __init__(self, since: int = 0) -> None:
        super().__init__()
        self.since, self.calls = since, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x.detach() if self.calls > self.since else x


class Exp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x)


class Power(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.pow(5)


class Root(nn.Module):
    """The root of how far each value lies below its row's largest; there the slope is infinite."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.max(-1, keepdim=True).values - x).sqrt()


class Untaken(nn.Module):
    """Zero below zero, a root above: the gradient of the branch not taken is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x.sqrt(), torch.zeros_like(x))


class LogFeature(nn.Module):
    """Adds a logarithm of each feature; a feature of exactly zero gives minus infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.05 * x.pow(2).log()


class UnitRows(nn.Module):
    """Rows of length one, times the root of the width; a row of zeros is 0 / 0."""

    def forward(self, x: Tensor) -> Tensor:
        length: Tensor = x.norm(dim=-1, keepdim=True)
        return x / length * float(x.shape[-1] ** 0.5)


class Factors(nn.Module):
    """A linear map as a product of two factors, both of them zero."""

    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(inp, 4, bias=False), nn.Linear(4, out, bias=False)
        nn.init.zeros_(self.a.weight)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.b(self.a(x))
        return found
