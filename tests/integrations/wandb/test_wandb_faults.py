"""A server that is gone, fails or answers late, and a service that dies: bounded time, one error, nothing lost."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import wandb

from neuraldbg.integrations.wandb import WandbSink
from neuraldbg.report.json import from_json
from neuraldbg.sinks import Undelivered

from .loopback import Fault, Server
from .sessions import FAILED, FILES, automatic, session

DEADLINE = 1.5
SLACK = 6.0  # seconds for what a machine under load does beside waiting; wandb itself would wait for 19 and longer
FAULTS = [Fault(drop=True), Fault(status=500), Fault(status=429), Fault(delay=3.0)]


@pytest.mark.parametrize("fault", FAULTS, ids=["gone", "500", "429", "slow"])
def test_a_server_that_fails_costs_the_deadline_and_one_error_and_everything_is_on_disk(
    server: Server, online: Any, elsewhere: Any, fault: Fault
) -> None:
    run = online(seconds=1.0)
    server.fault = fault
    logged: list[float] = []

    def log(number: int) -> None:
        start = time.monotonic()
        automatic(run, number)
        logged.append(time.monotonic() - start)

    start = time.monotonic()
    with pytest.raises(Undelivered, match=r"did not take the table of hypotheses and the artifact within 1.5 s; the"):
        session(WandbSink(close_timeout=DEADLINE), between=log)
    assert time.monotonic() - start < DEADLINE + SLACK
    assert max(logged) < SLACK
    run.finish()
    folder = Path(run.dir, "neuraldbg")
    assert {file.name for file in folder.iterdir()} == FILES
    assert from_json((folder / "diagnosis.json").read_text()) == FAILED


def test_what_the_server_missed_arrives_with_a_later_sync(server: Server, online: Any, elsewhere: Any) -> None:
    run = online(seconds=1.0)
    server.fault = Fault(drop=True)
    with pytest.raises(Undelivered):
        session(WandbSink(close_timeout=DEADLINE), between=lambda number: automatic(run, number))
    run.finish()
    server.fault = Fault()
    too = "--include-online" if wandb.__version__.startswith("0.28.") else "--no-skip-online"  # renamed in 0.29
    elsewhere("-m", "wandb", "sync", too, str(Path(run.dir).parent))
    got = server.run(run.id)
    assert got.summary["neuraldbg_cause"] == "learning_rate_too_high"
    assert got.config["neuraldbg"]["verdict"] == "failed"
    assert len([row for row in got.rows if "loss" in row]) == 3
    assert {f"neuraldbg/{name}" for name in FILES} <= set(got.files)


def test_a_refusal_is_told_with_its_reason_at_once(server: Server, online: Any) -> None:
    run = online(seconds=1.0)
    server.fault = Fault(status=403)
    start = time.monotonic()
    with pytest.raises(Undelivered, match=r"the artifact \(AuthenticationError: .*\); the same is in"):
        session(WandbSink(close_timeout=30.0))
    assert time.monotonic() - start < 20.0
    run.finish()


DYING = """
    import os, pathlib, signal, time, wandb, torch
    from torch import nn
    from neuraldbg.integrations.wandb import autolog

    autolog()
    run = wandb.init(mode="offline", project="p")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(40):
        x = torch.randn(16, 4)
        x[0, 0] = float("nan") if step > 24 else 0.0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if step == 20:
            for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                if b"wandb-core" in entry.read_bytes() and str(os.getpid()).encode() in entry.read_bytes():
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            time.sleep(0.3)
    print("trained to the end")
    autolog(disable=True)
    print("files:", *sorted(p.name for p in pathlib.Path(run.dir, "neuraldbg").iterdir()))
    os._exit(0)
"""


@pytest.mark.services  # with the other long ones
def test_a_training_outlives_the_death_of_wandbs_service(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    printed = elsewhere("-c", textwrap.dedent(DYING))
    assert "trained to the end" in printed
    assert f"files: {' '.join(sorted(FILES))}" in printed
    warned = [line for line in printed.splitlines() if "NeuralDBG" in line]
    assert len(warned) == 1
    assert "did not take all of the diagnosis" in warned[0]
