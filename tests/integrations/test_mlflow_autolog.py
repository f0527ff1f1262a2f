"""`autolog()` in real trainings: one line, a verdict in each run, and the user's own code undisturbed."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from neuraldbg import NeuralDbg
from neuraldbg.integrations.mlflow import autolog
from neuraldbg.watch import discover

STEPS = 20


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model: nn.Module, optimizer: Optimizer, steps: int = STEPS, broken_from: int | None = None) -> None:
    for step in range(steps):
        x = torch.randn(16, 4)
        y = x.sum(1, keepdim=True)
        if broken_from is not None and step >= broken_from:
            x[3, 2] = torch.nan
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def trained(**options: Any) -> None:
    model = net()
    train(model, SGD(model.parameters(), 0.05), **options)


def steps_of(told: Any) -> int:
    return int(told.json("neuraldbg/diagnosis.json")["steps"])


# -- it stays out of the way ------------------------------------------------------------------------------------------


def test_without_autolog_a_run_carries_nothing_of_ours(told: Any) -> None:
    with mlflow.start_run() as run:
        trained()
    assert told(run).tags == {}


def test_a_run_without_training_carries_nothing_of_ours(told: Any) -> None:
    autolog()
    with mlflow.start_run() as run:
        mlflow.log_metric("a", 1.0)
    assert told(run).tags == {}


def test_turning_it_off_gives_back_what_was_wrapped(told: Any) -> None:
    before = (mlflow.start_run, mlflow.end_run, mlflow.ActiveRun.__exit__, Optimizer.__init__)
    autolog()
    autolog(create_run="never")
    assert mlflow.end_run is not before[1]
    autolog(disable=True)
    autolog(disable=True)
    assert (mlflow.start_run, mlflow.end_run, mlflow.ActiveRun.__exit__, Optimizer.__init__) == before
    with mlflow.start_run() as run:
        trained()
    assert told(run).tags == {}


def test_wrapped_functions_look_like_mlflows_own() -> None:
    import inspect

    start, end = inspect.signature(mlflow.start_run), inspect.signature(mlflow.end_run)
    autolog()
    assert (inspect.signature(mlflow.start_run), inspect.signature(mlflow.end_run)) == (start, end)


def test_an_unknown_flag_is_refused_with_its_name_and_the_known_ones() -> None:
    with pytest.raises(
        TypeError, match=r"autolog\(\) has no flag 'log_model'; its flags are: disable, silent, exclusive"
    ):
        autolog(log_model=True)
    with pytest.raises(ValueError, match="create_run='yes' is unknown"):
        autolog(create_run="yes")


def test_the_users_exception_arrives_unchanged_and_is_named_in_the_run(told: Any) -> None:
    autolog()
    error = ValueError("bad batch")
    with pytest.raises(ValueError, match="bad batch") as caught, mlflow.start_run() as run:
        trained()
        raise error
    assert caught.value is error
    assert caught.value.__cause__ is None
    got = told(run)
    assert got.run.info.status == "FAILED"
    assert got.tags["exception"] == "ValueError"


def test_the_users_exception_arrives_unchanged_with_the_server_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")
    autolog(run_id="abc", close_timeout=0.8, spool_dir=tmp_path / "spool")
    uri = mlflow.get_tracking_uri()
    error = ValueError("bad batch")
    with pytest.raises(ValueError, match="bad batch") as caught, mlflow.start_run():
        mlflow.set_tracking_uri("http://127.0.0.1:9")
        trained()
        mlflow.set_tracking_uri(uri)
        raise error
    assert caught.value is error
    assert len([r for r in caplog.records if r.name == "neuraldbg" and r.levelno >= logging.WARNING]) == 1
    assert len(list((tmp_path / "spool").rglob("diagnosis.json"))) == 1


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_the_status_of_the_users_run_is_not_touched(told: Any, status: str) -> None:
    autolog()
    run = mlflow.start_run()
    trained(broken_from=5)
    mlflow.end_run(status)
    got = told(run)
    assert got.run.info.status == status
    assert got.tags["verdict"] == "failed"


def test_the_training_is_the_same_to_the_bit() -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = net()
        with mlflow.start_run():
            train(model, SGD(model.parameters(), 0.05))
        return [p.detach().clone() for p in model.parameters()]

    bare = weights()
    autolog()
    assert all(torch.equal(a, b) for a, b in zip(bare, weights(), strict=True))


# -- it tells ---------------------------------------------------------------------------------------------------------


def test_a_plain_loop_in_a_run_is_told_when_the_block_ends(told: Any) -> None:
    autolog(extra_tags={"team": "vision"})
    with mlflow.start_run(description="Mine.") as run:
        trained(broken_from=5)
    got = told(run)
    assert got.tags["verdict"] == "failed"
    assert got.tags["cause"] == "nan_in_input"
    assert got.tags["step"] == "5"
    assert got.run.data.tags["team"] == "vision"
    assert got.note.startswith("Mine.\n\n")
    assert steps_of(got) == STEPS


def test_a_healthy_loop_is_told_to_be_healthy_with_the_same_keys(told: Any) -> None:
    autolog()
    with mlflow.start_run() as run:
        trained(steps=200)
    got = told(run)
    assert got.tags["verdict"] == "healthy"
    assert got.tags["cause"] == "none"


def test_a_session_of_the_users_own_reports_into_the_run_and_is_the_only_one(told: Any, runs: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    with NeuralDbg(model) as dbg, mlflow.start_run() as run:
        train(model, optimizer, steps=5)
    got = told(run)
    assert got.tags["verdict"] == str(dbg.diagnose().verdict)
    assert steps_of(got) == 5
    assert len(runs()) == 1


def test_one_model_in_two_runs_gives_each_its_own_diagnosis(told: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    with mlflow.start_run() as first:
        train(model, optimizer, 7)
    with mlflow.start_run() as second:
        train(model, optimizer, 9, broken_from=2)
    assert (steps_of(told(first)), steps_of(told(second))) == (7, 9)
    assert told(second).tags["step"] == "2"
    assert told(first).tags["verdict"] != "failed"


def test_six_runs_in_one_process_give_six_verdicts(runs: Any) -> None:
    autolog()
    for k in range(6):
        with mlflow.start_run():
            trained(steps=10 + k, broken_from=4 if k % 2 else None)
    assert [steps_of(r) for r in runs()] == [10, 11, 12, 13, 14, 15]
    assert [r.tags["cause"] == "nan_in_input" for r in runs()] == [False, True] * 3


def test_runs_without_a_with_block_are_told_when_they_end(runs: Any) -> None:
    autolog()
    for steps in (5, 6):
        mlflow.start_run()
        trained(steps=steps)
        mlflow.end_run()
    assert [steps_of(r) for r in runs()] == [5, 6]


def test_without_any_run_one_is_made_for_the_training_and_finished(runs: Any) -> None:
    autolog()
    trained(broken_from=5)
    autolog(disable=True)
    (made,) = runs()
    assert made.run.info.status == "FINISHED"
    assert made.tags["cause"] == "nan_in_input"
    assert mlflow.active_run() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model_is_told_like_any_other(told: Any, when: str) -> None:
    torch._dynamo.reset()
    if when == "after":
        autolog()
    model = net()
    compiled: Any = torch.compile(model, backend="aot_eager")
    if when == "before":
        autolog()
    with mlflow.start_run() as run:
        train(compiled, SGD(compiled.parameters(), 0.05))
    got = told(run)
    assert steps_of(got) == STEPS
    assert {p["name"] for p in got.json("neuraldbg/diagnosis.json")["facts"]["parameters"]} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }


def test_a_gan_is_one_diagnosis_of_two_models(told: Any) -> None:
    autolog()
    generator, critic = net(), nn.Linear(1, 1)
    with mlflow.start_run() as run:
        first, second = SGD(generator.parameters(), 0.01), SGD(critic.parameters(), 0.01)
        for _ in range(STEPS):
            second.zero_grad()
            (critic(generator(torch.randn(8, 4)).detach()).mean() - critic(torch.randn(8, 1)).mean()).backward()
            second.step()
            first.zero_grad()
            (-critic(generator(torch.randn(8, 4))).mean()).backward()
            first.step()
    got = told(run)
    assert len(got.json("neuraldbg/diagnosis.json")["facts"]["models"]) == 2
    assert steps_of(got) == STEPS


SCRIPT = """
    import mlflow, torch
    from torch import nn
    mlflow.set_tracking_uri({store!r})
    mlflow.set_experiment("test")
    from neuraldbg.integrations.mlflow import autolog
    autolog()
    torch.manual_seed(0)
    {before}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(12):
        x = torch.randn(16, 4)
        x[0, 0] = float("nan") if step > 4 else 0.0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    {after}
"""


@pytest.mark.parametrize(
    ("before", "after", "code", "status"),
    [
        ("mlflow.start_run()", "", 0, "FINISHED"),
        ("mlflow.start_run()", "raise ValueError('mine')", 1, "FINISHED"),
        ("", "", 0, "FINISHED"),
    ],
    ids=["open run", "uncaught exception", "no run"],
)
def test_the_last_run_is_told_when_the_interpreter_exits(
    store: str, tmp_path: Path, runs: Any, before: str, after: str, code: int, status: str
) -> None:
    script = textwrap.dedent(SCRIPT).format(store=store, before=before, after=after)
    result = subprocess.run(
        [sys.executable, "-W", "default", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == code, result.stderr
    assert "NeuralDBG" not in result.stderr
    (run,) = runs()
    assert steps_of(run) == 12
    assert run.tags["cause"] == "nan_in_input"
    assert run.run.info.status == status
    assert not (tmp_path / ".neuraldbg").exists()


def test_a_failed_model_that_lives_on_says_nothing_of_the_next_training(told: Any) -> None:
    """Its gradients stay where they are; it is taken in again with its optimizer, takes no part, and leaves."""
    autolog()
    failed = net()
    old = SGD(failed.parameters(), 0.05)
    with mlflow.start_run() as first:
        train(failed, old, 9, broken_from=2)
    model = net()
    optimizer = SGD(model.parameters(), 0.05)  # made before the run: then all that live are taken in with it
    with mlflow.start_run() as second:
        train(model, optimizer, 30)
    assert (told(first).tags["verdict"], told(second).tags["verdict"]) == ("failed", "healthy")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_run_ends_also_where_the_diagnosis_at_its_end_is_interrupted(
    told: Any, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    def stop(*_: Any) -> None:
        raise interrupt

    autolog()
    monkeypatch.setattr(discover, "run_ending", stop)
    first = mlflow.start_run()
    with pytest.raises(interrupt):
        mlflow.end_run("FAILED")
    with pytest.raises(interrupt), mlflow.start_run() as second:
        pass
    assert mlflow.active_run() is None
    statuses = [mlflow.get_run(run.info.run_id).info.status for run in (first, second)]
    assert statuses == ["FAILED", "FINISHED"]
