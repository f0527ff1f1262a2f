"""A real MLflow store for each test: a copy of one SQLite database, for making its tables takes seconds."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from mlflow.entities import Run

from neuraldbg.integrations.mlflow import autolog


@pytest.fixture(scope="session", name="tables")
def _tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "mlflow.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return path


@pytest.fixture(name="store", autouse=True)
def _store(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The tracking URI; autolog is off before and after, errors of sinks are raised, and we stand in tmp_path."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURALDBG_STRICT", "1")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
    shutil.copy(tables, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    before = mlflow.get_tracking_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # the next line sets it too, and nobody would take it away again
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("test", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("test")
    yield uri
    autolog(disable=True)
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


class Told:
    """What MLflow has of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tags: dict[str, str] = {
            k.removeprefix("neuraldbg."): v for k, v in run.data.tags.items() if k.startswith("neuraldbg.")
        }
        self.metrics: dict[str, float] = run.data.metrics
        self.note: str = run.data.tags.get("mlflow.note.content", "")

    @property
    def files(self) -> set[str]:
        client = mlflow.MlflowClient()
        top = {f.path for f in client.list_artifacts(self.run.info.run_id) if not f.is_dir}
        return top | {f.path for f in client.list_artifacts(self.run.info.run_id, "neuraldbg")}

    def json(self, path: str) -> Any:
        return mlflow.artifacts.load_dict(f"{self.run.info.artifact_uri}/{path}")

    def text(self, path: str) -> str:
        return str(mlflow.artifacts.load_text(f"{self.run.info.artifact_uri}/{path}"))


@pytest.fixture(name="told")
def _told() -> Any:
    """told(run or its id): what MLflow has of it now."""

    def told(run: Any) -> Told:
        return Told(mlflow.get_run(run if isinstance(run, str) else run.info.run_id))

    return told


@pytest.fixture(name="runs")
def _runs() -> Any:
    """runs(): all runs of the experiment, oldest first."""

    def runs() -> list[Told]:
        client = mlflow.MlflowClient()
        ids = [e.experiment_id for e in client.search_experiments()]
        return [Told(r) for r in client.search_runs(ids, order_by=["attributes.start_time ASC"])]

    return runs
