"""What a session cannot measure but can tell: held graphs, a wrapper that is gone around, parts without gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg


def train(model: Any, steps: int = 40, keep: Any = lambda loss: None, call: Any = None) -> NeuralDbg:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (call or model)(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            keep(loss)
    return dbg


def notes(dbg: NeuralDbg) -> str:
    return "; ".join(dbg.diagnose().facts.coverage.notes)


def test_losses_that_are_let_go_and_numbers_of_them_hold_no_graph() -> None:
    numbers: list[float] = []
    assert "graphs" not in notes(train(nn.Linear(4, 2)))
    assert "graphs" not in notes(train(nn.Linear(4, 2), keep=lambda loss: numbers.append(loss.item())))


def test_the_last_few_losses_may_be_held() -> None:
    held: list[Any] = []

    def last_ten(loss: Any) -> None:
        held.append(loss)
        del held[:-10]

    assert "graphs" not in notes(train(nn.Linear(4, 2), keep=last_ten))


@pytest.mark.parametrize("steps", [40, 200])
def test_losses_that_are_all_held_are_told(steps: int) -> None:
    held: list[Any] = []
    assert "the graphs of all earlier losses are still held" in notes(train(nn.Linear(4, 2), steps, keep=held.append))


def test_a_running_total_of_losses_holds_them_too() -> None:
    total: list[Any] = [0.0]

    def add(loss: Any) -> None:
        total[0] = total[0] + loss

    assert "keep loss.item()" in notes(train(nn.Linear(4, 2), keep=add))


@pytest.mark.parametrize("around", [False, True], ids=["through the wrapper", "around it"])
def test_a_forward_around_distributed_data_parallel_is_told(tmp_path: Path, around: bool) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(nn.Linear(4, 2))
        said = notes(train(model, call=model.module if around else None))
    finally:
        torch.distributed.destroy_process_group()
    assert ("goes around DistributedDataParallel" in said) is around


class Parts(nn.Module):
    def __init__(self, gradient: bool) -> None:
        super().__init__()
        self.body, self.head, self.gradient = nn.Linear(4, 4), nn.Linear(4, 2), gradient

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(checkpoint(self.body, x.requires_grad_(self.gradient), use_reentrant=True))


def test_a_checkpoint_that_computes_again_with_gradients_is_not_cut_off() -> None:
    assert all(e.symptom != "no_gradient" for e in train(Parts(gradient=True)).diagnose().events)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_checkpoint_whose_input_needs_no_gradient_cuts_its_part_off() -> None:
    (event,) = [e for e in train(Parts(gradient=False)).diagnose().events if e.symptom == "no_gradient"]
    assert (event.layer_name, event.metadata["without_grad"]) == ("body", True)


def test_an_evaluation_without_gradients_marks_no_part() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

    def evaluate(loss: Any) -> None:
        with torch.no_grad():
            model(torch.randn(8, 4))

    known = train(model, keep=evaluate).diagnose().facts
    assert not any(m.without_grad for m in known.modules)


def test_running_statistics_are_read_at_the_end_as_the_rms_that_they_stand_for() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    dbg = train(model)
    mean, var = (b.double() for n, b in model[1].named_buffers() if n != "num_batches_tracked")
    expected = float((mean**2 + var).mean().sqrt())
    known = {m.name: m.running_rms for m in dbg.diagnose().facts.modules}
    assert known["1"] == pytest.approx(expected) and known["0"] is None
