"""Whether the units of a layer start with the same weights is read once, from the weights themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg
from neuraldbg.watch.parameters import units_alike


@pytest.mark.parametrize(
    "weights",
    [
        torch.randn(8, 4),
        torch.zeros(8, 4),  # one factor of an adapter starts so on purpose
        torch.ones(1, 4),
        torch.ones(8),
        torch.ones(0, 4),
        torch.full((8, 4), torch.nan),
        torch.cat([torch.ones(7, 4), torch.zeros(1, 4)]),
    ],
    ids=["random", "zero", "one unit", "vector", "empty", "not a number", "one differs"],
)
def test_units_that_differ_or_do_nothing_are_not_alike(weights: Tensor) -> None:
    assert not units_alike(weights)


@pytest.mark.parametrize("shape", [(2, 4), (64, 4), (8, 3, 3, 3)])
def test_equal_rows_are_alike_whatever_is_in_them(shape: tuple[int, ...]) -> None:
    assert units_alike(torch.randn(1, *shape[1:]).expand(shape))
    assert units_alike(torch.full(shape, 0.1, dtype=torch.float16))


def train(start: Callable[[Tensor], object]) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    for layer in (model[0], model[2], model[4]):
        start(layer.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
    with NeuralDbg(model) as dbg:
        for _ in range(12):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return [f"{e.symptom} {e.layer_name} {e.step}" for e in dbg.events if e.symptom == "identical_units"]


def test_a_usual_start_is_silent() -> None:
    assert train(nn.init.xavier_uniform_) == []


def test_a_constant_start_is_told_of_the_first_layer() -> None:
    assert train(lambda w: nn.init.constant_(w, 0.1)) == ["identical_units 0 0"]
