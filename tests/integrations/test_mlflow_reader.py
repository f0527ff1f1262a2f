"""`compare` over an MLflow experiment: what the spoke wrote into runs comes back as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlflow
import pytest
import torch
from torch import nn

import neuraldbg
from neuraldbg.integrations import _mlflow_reader
from neuraldbg.integrations.mlflow import autolog
from neuraldbg.sweep.rows import Row, rows_of


def rows(source: str = "mlflow:test") -> list[Row]:
    return list(rows_of(source))


def test_an_experiment_that_is_not_there_is_named_with_those_that_are(store: str) -> None:
    with pytest.raises(LookupError, match=f"no experiment 'digits' at {store} .*'test'"):
        rows("mlflow:digits")
    with pytest.raises(LookupError, match="no experiment '77'"):
        rows("mlflow:77")


def test_runs_of_others_come_without_a_verdict() -> None:
    with mlflow.start_run(run_name="bare") as run:
        mlflow.log_params({"lr": 0.1, "amp": True, "model": "cnn"})
    assert rows() == [Row("bare", parameters={"lr": 0.1, "amp": True, "model": "cnn"}, where=run.info.run_id)]
    assert neuraldbg.compare("mlflow:test").undiagnosed == 1


def train(bad: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        inputs = torch.randn(8, 4)
        if bad and step >= 10:
            inputs[0, 0] = torch.nan
        loss = (model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_what_autolog_wrote_comes_back_by_name_and_by_id() -> None:
    autolog(silent=True)
    for bad in (False, True):
        with mlflow.start_run(run_name=f"bad={bad}") as run:
            mlflow.log_param("lr", 0.01)
            train(bad)
    found, fine = rows()
    assert (found.name, found.verdict, found.cause, found.step) == ("bad=True", "failed", "nan_in_input", 10)
    assert (found.layer or "none") == mlflow.get_run(found.where).data.tags["neuraldbg.layer"]
    assert found.confidence is not None and 0 < found.confidence <= 1
    assert (fine.verdict, fine.cause, fine.layer, fine.step, fine.confidence) == ("healthy", None, None, None, None)
    assert rows(f"mlflow:{run.info.experiment_id}") == [found, fine]


@pytest.mark.parametrize("server", ["", "http://tracking"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 11])
def test_each_run_comes_once_newest_first_in_one_direction_or_from_both_ends(
    monkeypatch: pytest.MonkeyPatch, store: str, count: int, server: str
) -> None:
    """Runs that started in the same millisecond lie on the border of pages too."""
    monkeypatch.setattr(_mlflow_reader, "PAGE", 2)
    client = mlflow.MlflowClient(store)
    (experiment,) = (e.experiment_id for e in client.search_experiments() if e.name == "test")
    started = {
        client.create_run(experiment, start_time=1000 + k // 3, run_name=f"run {k}").info.run_id: k // 3
        for k in range(count)
    }
    found = list(_mlflow_reader._rows(client, experiment, server))
    assert sorted(row.name for row in found) == sorted(f"run {k}" for k in range(count))
    times = [started[row.where.removeprefix(server)] for row in found]
    assert times == sorted(times, reverse=True)


def test_rows_come_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds one page of MLflow's objects, whatever the size of the experiment."""
    asked: list[Any] = []
    original = mlflow.MlflowClient.search_runs

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        asked.append(named["page_token"])
        return original(self, *arguments, **named)

    monkeypatch.setattr(mlflow.MlflowClient, "search_runs", counted)
    monkeypatch.setattr(_mlflow_reader, "PAGE", 1)
    for _ in range(3):
        mlflow.start_run()
        mlflow.end_run()
    found: Iterator[Row] = rows_of("mlflow:test")
    next(found)
    assert len(asked) == 1
