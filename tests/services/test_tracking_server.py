"""MLflow's server on PostgreSQL, as the compose file starts it, from a plain loop with `autolog()`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from neuraldbg.integrations.mlflow import autolog
from tests.services import trainings
from tests.services.servers import Server

pytestmark = pytest.mark.services

FILES = {"neuraldbg.html", "neuraldbg_graph.svg"}
FOLDER = {f"neuraldbg/{n}" for n in ("report.md", "graph.mmd", "hypotheses.json", "diagnosis.json", "events.jsonl")}


def tags(run: str) -> dict[str, str]:
    return {k: v for k, v in mlflow.get_run(run).data.tags.items() if k.startswith("neuraldbg.")}


def files(run: str) -> set[str]:
    client = mlflow.MlflowClient()
    top = {f.path for f in client.list_artifacts(run) if not f.is_dir}
    return top | {f.path for f in client.list_artifacts(run, "neuraldbg")}


def diagnosis(run: str) -> dict[str, Any]:
    return dict(mlflow.artifacts.load_dict(f"runs:/{run}/neuraldbg/diagnosis.json"))


def test_a_diagnosis_lies_in_each_run_and_is_the_same_as_in_a_local_store(
    server: Server, experiment: str, tmp_path: Path
) -> None:
    autolog()
    there = {kind: trainings.run(kind) for kind in ("healthy", "nan", "rate")}
    found = {kind: tags(run) for kind, run in there.items()}
    assert {kind: t["neuraldbg.cause"] for kind, t in found.items()} == {
        "healthy": "none",
        "nan": "nan_in_input",
        "rate": "learning_rate_too_high",
    }
    assert found["nan"]["neuraldbg.step"] == str(trainings.BROKEN)
    assert all(files(run) >= FILES | FOLDER for run in there.values())
    assert {mlflow.get_run(run).info.status for run in there.values()} == {"FINISHED"}

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'local.db'}")
    mlflow.set_experiment("local")
    here = tags(trainings.run("nan"))
    mlflow.set_tracking_uri(server.url)
    assert here == found["nan"]


def test_points_and_events_are_in_the_order_of_the_training(experiment: str) -> None:
    autolog()
    run = trainings.run("rate")
    text = mlflow.artifacts.load_text(f"runs:/{run}/neuraldbg/events.jsonl")
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    assert steps == sorted(steps)
    assert len(steps) == len(diagnosis(run)["events"])
    history = mlflow.MlflowClient().get_metric_history(run, "neuraldbg/top_confidence")
    assert [m.step for m in history] == sorted(m.step for m in history)


def test_a_server_that_is_restarted_in_mid_run_has_everything_at_the_end(server: Server, experiment: str) -> None:
    """However long the client waits before it tries again: closing waits for it here."""
    autolog(close_timeout=90.0)
    with mlflow.start_run() as active:
        trainings.train("nan", after=trainings.BROKEN + 5, then=server.stop)
        server.start()
    run = str(active.info.run_id)
    assert tags(run)["neuraldbg.cause"] == "nan_in_input"
    assert files(run) >= FILES | FOLDER
    assert diagnosis(run)["steps"] == trainings.STEPS


def test_what_a_dead_server_missed_is_pushed_when_it_is_back(
    server: Server, experiment: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is told by its id, so that MLflow itself is not asked for anything while the server is away."""
    monkeypatch.delenv("NEURALDBG_STRICT")  # which lets a sink's failure through
    run = mlflow.MlflowClient().create_run(experiment).info.run_id
    autolog(run_id=run, spool_dir=tmp_path / "spool", close_timeout=2.0)
    server.stop()
    try:
        trainings.train("rate")
        autolog(disable=True)
    finally:
        server.start()
    assert "neuraldbg.cause" not in tags(run)
    assert len([r for r in caplog.records if r.name == "neuraldbg" and r.levelname == "WARNING"]) == 1

    from neuraldbg.integrations.mlflow import replay

    (folder,) = (tmp_path / "spool").iterdir()
    assert replay(folder, tracking_uri=server.url) == [run]
    assert tags(run)["neuraldbg.cause"] == "learning_rate_too_high"
    assert files(run) >= FILES | FOLDER
