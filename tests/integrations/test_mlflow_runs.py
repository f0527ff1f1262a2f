"""Runs that end and go on, runs in runs, and worker processes beside a run."""

from __future__ import annotations

import json
from typing import Any

import mlflow
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg.integrations.mlflow import autolog


def train(model: nn.Module, batches: Any, broken: bool = False) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs,) in enumerate(batches):
        x = inputs.clone()
        if broken and step >= 10:
            x[0, 0] = torch.nan
        loss = (model(x) - inputs.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def batches(count: int = 30) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(8, 4),) for _ in range(count)]


def test_a_run_that_is_resumed_tells_of_its_last_training_and_doubles_nothing(told: Any) -> None:
    autolog()
    with mlflow.start_run() as first:
        mlflow.set_tag("mlflow.note.content", "mine")
        train(network(), batches(), broken=True)
    before = told(first)
    before_table = before.text("neuraldbg/hypotheses.json")
    assert before.tags["cause"] == "nan_in_input"

    with mlflow.start_run(run_id=first.info.run_id) as again:
        train(network(), batches())
    after = told(again)
    assert after.tags["verdict"] != "failed"
    assert [tag for tag, value in after.tags.items() if "nan_in" in f"{tag} {value}"] == []
    assert after.files == before.files
    assert "nan_in_input" in before_table
    assert "nan_in_input" not in after.text("neuraldbg/hypotheses.json")
    assert after.note.startswith("mine\n\n")
    assert after.note.count("<!-- neuraldbg:begin -->") == 1
    assert len(json.loads(after.run.data.tags["mlflow.loggedArtifacts"])) == 1


def test_a_resumed_run_without_another_training_keeps_its_diagnosis(told: Any) -> None:
    autolog()
    with mlflow.start_run() as run:
        train(network(), batches(), broken=True)
    with mlflow.start_run(run_id=run.info.run_id):
        mlflow.log_metric("evaluated", 1.0)
    assert told(run).tags["cause"] == "nan_in_input"


def test_children_of_a_sweeps_run_carry_their_own_cause_and_the_parent_none(told: Any, runs: Any) -> None:
    autolog()
    with mlflow.start_run(run_name="sweep") as parent:
        for broken in (True, False):
            with mlflow.start_run(nested=True, run_name=f"broken={broken}"):
                train(network(), batches(), broken=broken)
    found = {run.run.info.run_name: run.tags.get("cause") for run in runs()}
    assert found.pop("broken=False") != "nan_in_input"
    assert found == {"sweep": None, "broken=True": "nan_in_input"}
    assert told(parent).note == ""


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_that_load_the_data_leave_one_diagnosis_of_one_training(runs: Any, start: str) -> None:
    autolog()
    data = TensorDataset(torch.randn(160, 4))
    with mlflow.start_run():
        train(network(), DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context=start))
    (run,) = runs()
    assert run.tags["verdict"] in ("healthy", "warning")
    assert run.json("neuraldbg/diagnosis.json")["steps"] == 20
