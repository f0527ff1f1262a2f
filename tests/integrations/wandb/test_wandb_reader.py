"""`neuraldbg compare wandb:ENTITY/PROJECT`: the runs of a project as rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
import wandb

from neuraldbg.integrations._wandb_reader import read
from neuraldbg.sweep.rows import Row

from .loopback import KEY, Server

FAILED = {
    "neuraldbg_verdict": "failed",
    "neuraldbg_cause": "learning_rate_too_high",
    "neuraldbg_layer": "fc1",
    "neuraldbg_first_step": 7,
    "neuraldbg_confidence": 0.9,
    "loss": "NaN",
}
HEALTHY = {"neuraldbg_verdict": "healthy", "neuraldbg_cause": "none", "neuraldbg_layer": "none"}


@pytest.fixture(name="project")
def _project(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A project of three runs: one failed, one healthy, one that NeuralDBG never saw."""
    monkeypatch.setattr(wandb, "Api", lambda: api(server))
    for name, summary, config in (
        ("first", FAILED, {"lr": 1.0, "net": {"depth": 3, "act": "relu"}, "amp": True, "neuraldbg": {"cause": "x"}}),
        ("second", HEALTHY, {"lr": "1e-3", "sizes": [1, 2]}),
        ("third", {}, {}),
    ):
        run = server.run(name)
        run.summary = dict(summary)
        run.upserts["config"] = json.dumps({k: {"value": v} for k, v in {**config, "_wandb": {}}.items()})
    return server


API = wandb.Api


def api(server: Server) -> Any:
    return API(overrides={"base_url": server.url}, api_key=KEY)


def test_what_names_no_project_is_refused_with_an_example() -> None:
    for name in ("", "/", "a/b/c"):
        with pytest.raises(LookupError, match="is no W&B project; give for example wandb:my-team/my-project"):
            read(name)


def test_a_project_that_is_not_there_is_said_before_the_first_row(project: Server) -> None:
    with pytest.raises(LookupError, match="W&B gave no runs of the project 'local/other': "):
        read("local/other")


def test_runs_become_rows_with_their_hyper_parameters_and_nothing_of_ours_among_them(project: Server) -> None:
    rows = list(read("local/p"))
    assert rows == [
        Row(
            "first",
            "failed",
            "learning_rate_too_high",
            "fc1",
            7,
            0.9,
            {"lr": 1.0, "net.depth": 3.0, "net.act": "relu", "amp": True},
            f"{project.url}/local/p/runs/first",
        ),
        Row("second", "healthy", parameters={"lr": 0.001}, where=f"{project.url}/local/p/runs/second"),
        Row("third", where=f"{project.url}/local/p/runs/third"),
    ]


def test_what_a_session_told_is_what_compare_reads(
    server: Server, online: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuraldbg.integrations.wandb import WandbSink

    from .sessions import session

    monkeypatch.setattr(wandb, "Api", lambda: api(server))
    run = online(config={"lr": 0.1})
    session(WandbSink(log_artifacts=False))
    run.finish()
    (row,) = read("local/p")
    assert (row.verdict, row.cause, row.layer, row.step, row.confidence, dict(row.parameters)) == (
        "failed",
        "learning_rate_too_high",
        "blocks.0.act",
        3,
        0.87,
        {"lr": 0.1},
    )
