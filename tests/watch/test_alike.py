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
        torch.ones(1, 4),
        torch.ones(8),
        torch.ones(0, 4),
        torch.full((8, 4), torch.nan),
        torch.cat([torch.ones(7, 4), torch.zeros(1, 4)]),
    ],
    ids=["random", "one unit", "vector", "empty", "not a number", "one differs"],
)
def test_units_that_differ_are_not_alike(weights: Tensor) -> None:
    assert units_alike(weights) is None


@pytest.mark.parametrize("shape", [(2, 4), (64, 4), (8, 3, 3, 3)])
def test_equal_rows_are_alike_whatever_is_in_them(shape: tuple[int, ...]) -> None:
    row = torch.randn(1, *shape[1:])
    assert units_alike(row.expand(shape)) == row.abs().max()
    assert units_alike(torch.full(shape, 0.5, dtype=torch.float16)) == 0.5
    assert units_alike(torch.zeros(shape)) == 0.0


def train(start: Callable[[Tensor], object], rest: Callable[[Tensor], object] | None = None) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    for layer in (model[0], model[2], model[4]):
        assert isinstance(layer, nn.Linear)
        (rest if rest is not None and layer is model[4] else start)(layer.weight)
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


def test_an_end_that_starts_at_zero_is_usual() -> None:
    assert train(nn.init.xavier_uniform_, rest=nn.init.zeros_) == []


def test_two_zero_factors_before_another_layer_are_a_fault_of_their_own() -> None:
    assert train(nn.init.zeros_, rest=nn.init.xavier_uniform_) == []


def test_a_whole_net_of_zeros_is_told() -> None:
    assert train(nn.init.zeros_) == ["identical_units 0 0"]


def test_a_constant_start_is_told_of_the_first_layer() -> None:
    assert train(lambda w: nn.init.constant_(w, 0.1)) == ["identical_units 0 0"]
