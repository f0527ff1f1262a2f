"""`autolog()` in real trainings: one line, a verdict in each run, and the user's own code undisturbed."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from torch import nn
from torch.optim import SGD, Optimizer

from neuraldbg import NeuralDbg
from neuraldbg.integrations.wandb import WandbSink, autolog
from neuraldbg.sinks import Undelivered

from .conftest import own_service
from .offline_log import settled

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
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if wandb.run is not None:
            wandb.log({"loss": loss.item()})


def trained(**options: Any) -> None:
    model = net()
    train(model, SGD(model.parameters(), 0.05), **options)


def steps_of(run: Any, folder: str = "neuraldbg") -> int:
    return int(json.loads(Path(run.dir, folder, "diagnosis.json").read_text())["steps"])


def ours(log: Any) -> list[str]:
    places = (*log.summary, *log.config, *log.files, *log.tags, *(key for row in log.rows for key in row))
    return [key for key in places if "neuraldbg" in key]


# -- it stays out of the way ------------------------------------------------------------------------------------------


def test_without_autolog_a_run_carries_nothing_of_ours(begin: Any, told: Any) -> None:
    run = begin()
    trained()
    assert ours(told(run)) == []


def test_a_run_without_training_carries_nothing_of_ours(begin: Any, told: Any) -> None:
    autolog()
    run = begin()
    run.log({"a": 1.0})
    assert ours(told(run)) == []


def test_turning_it_off_gives_back_what_was_wrapped(begin: Any, told: Any) -> None:
    before = (wandb.Run.finish, wandb.Run.__exit__, wandb.init, Optimizer.__init__)
    autolog()
    autolog(log_files=False)
    assert wandb.Run.finish is not before[0]
    autolog(disable=True)
    autolog(disable=True)
    assert (wandb.Run.finish, wandb.Run.__exit__, wandb.init, Optimizer.__init__) == before
    run = begin()
    trained()
    assert ours(told(run)) == []


def test_the_wrapped_function_looks_like_wandbs_own() -> None:
    before = inspect.signature(wandb.Run.finish), wandb.Run.finish.__doc__
    autolog()
    assert (inspect.signature(wandb.Run.finish), wandb.Run.finish.__doc__) == before


def test_an_unknown_flag_is_refused_with_its_name_and_the_known_ones() -> None:
    with pytest.raises(
        TypeError, match=r"autolog\(\) has no flag 'log_model'; its flags are: disable, silent, log_history"
    ):
        autolog(log_model=True)
    with pytest.raises(ValueError, match="close_timeout=0 is no positive number of seconds"):
        autolog(close_timeout=0)


def test_the_users_exception_arrives_unchanged_and_is_named_in_the_run(begin: Any, told: Any) -> None:
    autolog()
    error = ValueError("bad batch")
    run = begin()
    with pytest.raises(ValueError, match="bad batch") as caught, run:
        trained()
        raise error
    assert caught.value is error
    assert caught.value.__cause__ is None
    log = told(run)
    assert log.exit_code == 1
    assert log.summary["neuraldbg_exception"] == "ValueError"


def test_the_training_and_the_users_rows_are_the_same_to_the_bit(begin: Any, told: Any) -> None:
    def one() -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
        torch.manual_seed(1)
        model = net()
        with begin() as run:
            train(model, SGD(model.parameters(), 0.05), broken_from=15)
            drawn = torch.rand(3)
        return [*(p.detach().clone() for p in model.parameters()), drawn], told(run).users_rows()

    bare, rows = one()
    autolog()
    watched, watched_rows = one()
    assert all(torch.equal(a, b) or (a.isnan() & b.isnan()).any() for a, b in zip(bare, watched, strict=True))
    assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(bare, watched, strict=True))
    assert json.dumps(watched_rows) == json.dumps(rows)
    assert len(rows) == STEPS


# -- it tells ---------------------------------------------------------------------------------------------------------


def test_a_plain_loop_in_a_run_is_told_when_the_block_ends(begin: Any, told: Any) -> None:
    autolog()
    with begin() as run:
        trained(broken_from=5)
    log = told(run)
    assert log.summary["neuraldbg_verdict"] == "failed"
    assert log.summary["neuraldbg_cause"] == "nan_in_input"
    assert log.summary["neuraldbg_first_step"] == 5
    assert log.tags == ("neuraldbg:failed", "neuraldbg:nan_in_input")
    assert steps_of(run) == STEPS
    assert log.series("neuraldbg/event/nan_input") != []
    assert max(log.series("neuraldbg/severity")) == 2


def test_a_healthy_loop_is_told_to_be_healthy_with_the_same_columns(begin: Any, told: Any) -> None:
    autolog()
    with begin() as run:
        trained(steps=200)
    log = told(run)
    assert (log.summary["neuraldbg_verdict"], log.summary["neuraldbg_cause"]) == ("healthy", "none")
    assert len(log.users_rows()) == 200


def test_a_session_of_the_users_own_reports_into_the_run_and_is_the_only_one(begin: Any, told: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    with begin() as run, NeuralDbg(model):
        train(model, optimizer, steps=5)
    assert told(run).summary["neuraldbg_sessions"] == 1
    assert steps_of(run) == 5


def test_a_session_that_outlasts_its_run_tells_it_what_is_known_at_its_end(begin: Any, told: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    with NeuralDbg(model) as dbg:
        with begin() as run:
            train(model, optimizer, broken_from=5)
        log = told(run)
    assert log.summary["neuraldbg_cause"] == dbg.explain_failure()[0].cause == "nan_in_input"
    assert steps_of(run) == STEPS


def test_what_a_session_finds_after_its_run_is_kept_beside_the_run_and_said(begin: Any, told: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    dbg = NeuralDbg(model)
    dbg.__enter__()
    with begin() as run:
        train(model, optimizer, steps=60)
    train(model, optimizer, broken_from=5)
    with pytest.raises(Undelivered, match=rf"W&B run {run.id} ended before the session; .*diagnosis.json"):
        dbg.finish()
    assert told(run).summary["neuraldbg_failed"] == 0
    assert json.loads(Path(run.dir, "neuraldbg", "diagnosis.json").read_text())["verdict"] == "failed"


def test_without_autolog_a_sink_given_to_a_session_is_enough(begin: Any, told: Any) -> None:
    before = wandb.Run.finish
    model = net()
    with begin() as run, NeuralDbg(model, sinks=[WandbSink(run)]):
        train(model, SGD(model.parameters(), 0.05), broken_from=5)
    assert wandb.Run.finish is before
    assert told(run).summary["neuraldbg_cause"] == "nan_in_input"


def test_one_model_in_two_runs_gives_each_its_own_diagnosis(begin: Any, told: Any) -> None:
    autolog()
    model = net()
    optimizer = SGD(model.parameters(), 0.05)
    with begin() as first:
        train(model, optimizer, 7)
    with begin() as second:
        train(model, optimizer, 9, broken_from=2)
    assert (steps_of(first), steps_of(second)) == (7, 9)
    assert told(first).summary["neuraldbg_failed"] == 0, Path(first.dir, "neuraldbg", "report.md").read_text()
    assert told(second).summary["neuraldbg_first_step"] == 2


@pytest.mark.parametrize("ending", ["finish", "wandb.finish", "init"])
def test_each_way_to_end_a_run_tells_it_first(begin: Any, told: Any, ending: str) -> None:
    autolog()
    run = begin()
    trained(steps=5)
    if ending == "finish":
        run.finish()
    elif ending == "wandb.finish":
        wandb.finish()
    else:
        begin(reinit="finish_previous")
    (path,) = Path(run.dir).parent.glob("*.wandb")
    assert settled(path).summary["neuraldbg_verdict"] in ("healthy", "warning")
    assert steps_of(run) == 5


def test_without_any_run_none_is_made_and_the_report_stays_on_disk(tmp_path: Path) -> None:
    autolog()
    trained(broken_from=5)
    with pytest.raises(Undelivered, match="no W&B run was active"):
        autolog(disable=True)
    assert wandb.run is None
    assert len(list((tmp_path / ".neuraldbg" / "wandb").rglob("diagnosis.json"))) == 1


@pytest.mark.filterwarnings("ignore:.*parameters.yaml:pytest.PytestUnraisableExceptionWarning")  # wandb leaves it open
def test_a_run_of_a_sweep_carries_its_cause_beside_the_sweeps_parameters(
    begin: Any, told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent hands both over by the environment; a sweep's parameters are locked, ours is none of them."""
    (tmp_path / "parameters.yaml").write_text("lr:\n  value: 0.25\n")
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep7")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(tmp_path / "parameters.yaml"))
    wandb.teardown()  # it reads its environment when its service starts
    autolog()
    with begin(config={"lr": 0.1}) as run:
        assert run.config["lr"] == 0.25
        trained(broken_from=5)
    log = told(run)
    wandb.teardown()
    assert log.sweep == "sweep7"
    assert log.config["lr"] == 0.25
    assert log.config["neuraldbg"]["cause"] == "nan_in_input"


SCRIPT = """
    import wandb, torch
    from torch import nn
    from neuraldbg.integrations.wandb import autolog
    autolog()
    torch.manual_seed(0)
    wandb.init(project="p", mode="offline", dir=".")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(40):
        x = torch.randn(16, 4)
        x[0, 0] = float("nan") if step > 4 else 0.0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    {after}
"""


def test_the_last_run_is_told_when_the_interpreter_exits_by_an_uncaught_exception(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(SCRIPT).format(after="raise ValueError('mine')")],
        cwd=tmp_path,
        env=own_service(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert "NeuralDBG" not in result.stderr
    (path,) = tmp_path.rglob("*.wandb")
    log = settled(path)
    assert log.summary["neuraldbg_cause"] == "nan_in_input"
    assert log.exit_code == 1


DRAWS = """
    import random, sys, numpy, torch, wandb
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(0)
    if sys.argv[1] == "watched":
        from neuraldbg.integrations.wandb import autolog
        autolog()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with wandb.init(project="p", mode="offline", dir="."):
        for step in range(40):
            optimizer.zero_grad()
            (model(torch.randn(16, 4)) * random.random()).square().mean().backward()
            optimizer.step()
    print(random.random(), numpy.random.rand(), torch.rand(1).item(), model.weight.tolist())
"""


def test_no_random_number_is_drawn_by_loading_and_reporting(tmp_path: Path) -> None:
    """In processes of their own: a module is loaded once, and some draw a number then."""
    drawn = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DRAWS), how],
            cwd=tmp_path,
            env=own_service(),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for how in ("bare", "watched")
    ]
    assert drawn[0] == drawn[1] != ""
    assert len(list(tmp_path.rglob("diagnosis.json"))) == 1


def test_after_a_kill_the_journal_beside_the_run_gives_the_diagnosis(tmp_path: Path) -> None:
    """The run's own log may hold nothing by then: wandb writes it late."""
    import signal

    from neuraldbg.journal import rebuild

    after = "import os, signal, time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(after=after)],
        cwd=tmp_path,
        env=own_service(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL
    (saved,) = tmp_path.rglob("*-neuraldbg.wandb.jsonl")
    assert saved.is_relative_to(next(tmp_path.glob("wandb/offline-run-*")))
    top = rebuild(saved).top
    assert top is not None and top.cause == "nan_in_input"
