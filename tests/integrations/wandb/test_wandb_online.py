"""Runs on a W&B server (on loopback, through wandb's own client): what arrives there, also by a later sync."""

from __future__ import annotations

import os
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from neuraldbg.integrations.wandb import WandbSink
from neuraldbg.report.json import from_json

from .loopback import Server
from .sessions import FAILED, FILES, automatic, explicit_in_parts, session


def test_everything_arrives_on_the_server_and_the_users_rows_as_they_are(server: Server, online: Any) -> None:
    run = online(tags=["mine"], config={"lr": 0.1}, notes="Mine.")
    session(WandbSink(alert=True), between=lambda number: automatic(run, number))
    run.finish()
    got = server.run(run.id)
    assert [(row["_step"], row["loss"]) for row in got.rows if "loss" in row] == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert got.tags == ["mine", "neuraldbg:failed", "neuraldbg:learning_rate_too_high"]
    assert got.config["lr"] == 0.1
    assert got.config["neuraldbg"]["cause"] == "learning_rate_too_high"
    assert got.upserts["notes"] == "Mine."
    assert got.summary["neuraldbg_verdict"] == "failed"
    assert got.summary["neuraldbg/hypotheses"]["nrows"] == 2
    assert got.exit_code == 0
    assert [alert["title"] for alert in server.alerts] == [
        "NeuralDBG: non-finite values in the output",
        "NeuralDBG: failed, learning_rate_too_high",
    ]
    for name in FILES:
        assert got.files[f"neuraldbg/{name}"], name
    assert from_json(got.files["neuraldbg/diagnosis.json"].decode()) == FAILED
    (graph,) = [content for path, content in got.files.items() if path.startswith("media/html/neuraldbg/graph")]
    assert b"<svg" in graph
    assert {(a.kind, a.committed) for a in server.artifacts.values()} == {
        ("neuraldbg-diagnosis", True),
        ("run_table", True),
    }
    (ours,) = [a for a in server.artifacts.values() if a.kind == "neuraldbg-diagnosis"]
    assert ours.name == f"neuraldbg-{run.id}"
    assert set(ours.files) >= FILES


def test_an_offline_run_that_is_synced_later_says_the_same(
    server: Server, begin: Any, told: Any, elsewhere: Any
) -> None:
    run = begin(tags=["mine"])
    session(WandbSink(alert=True), between=lambda number: explicit_in_parts(run, number))
    log = told(run)
    elsewhere("-m", "wandb", "sync", str(Path(run.dir).parent))
    got = server.run(run.id)
    assert [row["_step"] for row in got.rows if "loss" in row] == [0, 3, 6]
    assert tuple(got.tags) == log.tags
    assert got.config["neuraldbg"] == log.config["neuraldbg"]
    assert {k: v for k, v in got.summary.items() if k.startswith("neuraldbg_")} == {
        k: v for k, v in log.summary.items() if k.startswith("neuraldbg_")
    }
    assert from_json(got.files["neuraldbg/diagnosis.json"].decode()) == FAILED
    assert all(artifact.committed for artifact in server.artifacts.values())
    assert {a.kind for a in server.artifacts.values()} == {"neuraldbg-diagnosis", "run_table"}
    assert len(server.alerts) == 2


def test_a_run_folder_that_was_moved_loses_no_report_though_wandb_keeps_artifacts_elsewhere(
    server: Server, begin: Any, told: Any, elsewhere: Any, tmp_path: Path
) -> None:
    run = begin()
    session(WandbSink())
    told(run)
    moved = tmp_path / "other machine" / Path(run.dir).parent.name
    shutil.move(Path(run.dir).parent, moved)
    shutil.rmtree(os.environ["WANDB_DATA_DIR"])
    elsewhere("-m", "wandb", "sync", str(moved))
    got = server.run(run.id)
    assert got.summary["neuraldbg_cause"] == "learning_rate_too_high"
    assert {f"neuraldbg/{name}" for name in FILES} <= set(got.files)
    assert not any(artifact.committed for artifact in server.artifacts.values())


SWEEP = """
    import wandb, torch
    from torch import nn
    from neuraldbg.integrations.wandb import autolog

    autolog()

    def train():
        with wandb.init() as run:
            torch.manual_seed(0)
            model = nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), run.config["lr"])
            for step in range(40):
                x = torch.randn(16, 4)
                loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log({"loss": loss.item()})

    space = {"method": "grid", "parameters": {"lr": {"values": [0.05, 20.0]}}}
    wandb.agent(wandb.sweep(space, project="p", entity="local"), function=train, project="p", entity="local")
"""


@pytest.mark.services  # an agent beats every few seconds, so that two runs take twenty
def test_the_runs_of_a_sweep_carry_their_causes_beside_the_sweeps_parameters(server: Server, elsewhere: Any) -> None:
    server.jobs = [{"lr": 0.05}, {"lr": 20.0}]
    printed = elsewhere("-c", textwrap.dedent(SWEEP))
    assert "NeuralDBG" not in printed, printed
    runs = {run.config["lr"]: run for run in server.runs.values()}
    assert set(runs) == {0.05, 20.0}
    assert {run.upserts["sweep"] for run in runs.values()} == {"sweep7"}
    assert runs[0.05].config["neuraldbg"]["verdict"] != "failed"
    assert runs[20.0].config["neuraldbg"]["cause"] == "learning_rate_too_high"
    assert "neuraldbg:failed" in runs[20.0].tags
    assert [len([row for row in run.rows if "loss" in row]) for run in runs.values()] == [40, 40]
