"""The Trainer of transformers reports to W&B: the diagnosis lies in the run that its own callback made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from transformers import TrainingArguments

from neuraldbg.integrations.transformers import NeuralDbgCallback
from neuraldbg.integrations.wandb import autolog
from tests.integrations.trainer import BATCH, STEPS, InOrder, Net, Rows

from .loopback import KEY, Run, Server
from .sessions import FILES


@pytest.fixture(name="known", autouse=True)
def _known(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainer's callback calls `wandb.init` without a server or a mode: both come from the environment."""
    told = {"WANDB_MODE": "online", "WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "WANDB_PROJECT": "p"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    wandb.teardown()  # it reads its environment when its service starts
    yield
    wandb.teardown()


def train(folder: Path, server: Server, broken: int | None = None) -> Run:
    """Train, and end the run as the end of a script does; what the server has of it."""
    arguments = TrainingArguments(
        str(folder / "out"), report_to="wandb", use_cpu=True, logging_steps=1, disable_tqdm=True, save_strategy="no",
        num_train_epochs=1, per_device_train_batch_size=BATCH, dataloader_pin_memory=False,
    )  # fmt: skip
    InOrder(Net(), arguments, train_dataset=Rows(broken), callbacks=[NeuralDbgCallback(show=False)]).train()
    assert wandb.run is not None, "the run is Trainer's, and we leave it open"
    wandb.finish()
    (run,) = server.runs.values()
    return run


def test_a_healthy_training_is_told_in_trainers_own_run_and_its_rows_are_all_there(
    tmp_path: Path, server: Server
) -> None:
    run = train(tmp_path, server)
    assert (run.summary["neuraldbg_verdict"], run.summary["neuraldbg_cause"]) == ("healthy", "none")
    assert [row["train/global_step"] for row in run.rows if "train/grad_norm" in row] == list(range(1, STEPS + 1))
    assert run.config["learning_rate"] == 5e-5 and run.exit_code == 0


@pytest.mark.parametrize("with_autolog", [False, True])
def test_the_cause_lies_in_trainers_own_run(tmp_path: Path, server: Server, with_autolog: bool) -> None:
    if with_autolog:
        autolog()
    run = train(tmp_path, server, broken=9)
    told = {name: run.summary[f"neuraldbg_{name}"] for name in ("verdict", "cause", "first_step", "sessions")}
    assert told == {"verdict": "failed", "cause": "nan_in_input", "first_step": 9, "sessions": 1}
    assert run.config["neuraldbg"]["cause"] == "nan_in_input"
    assert "neuraldbg:nan_in_input" in run.tags
    assert {f"neuraldbg/{name}" for name in FILES} <= set(run.files)
    assert len([row for row in run.rows if "train/grad_norm" in row]) == STEPS
