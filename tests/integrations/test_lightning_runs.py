"""Where the diagnosis of a fit goes: the run or folder of the Trainer's logger; and the callback by the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import mlflow
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, WandbLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from neuraldbg import compare
from neuraldbg.integrations.lightning import NeuralDbgCallback
from neuraldbg.integrations.mlflow import autolog

pytestmark = [  # Lightning's advice, and what it still calls of torch
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*treespec"),
]


class Net(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, rate: float = 0.05, name: str = "net") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Linear(6, 3)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self.body(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), self.hparams["rate"])


def broken() -> DataLoader[Any]:
    """A NaN in the tenth batch."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(160, 6, generator=g)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    x[72, 2] = float("nan")
    return DataLoader(TensorDataset(x, y), batch_size=8)


def fit(module: Net, logger: Any, *callbacks: Any) -> lightning.Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=logger, callbacks=list(callbacks), **quiet, log_every_n_steps=1
    )
    trainer.fit(module, broken())
    return trainer


def mlflow_logger(tmp_path: Path) -> MLFlowLogger:
    """Its store is not the one that MLflow is set to."""
    return MLFlowLogger("e", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db", run_name="fit")


def test_the_diagnosis_lies_in_the_run_of_the_mlflow_logger_which_ends_as_without_us(
    store: str, tmp_path: Path
) -> None:
    logger = mlflow_logger(tmp_path)
    fit(Net(), logger, NeuralDbgCallback(show=False))
    assert mlflow.active_run() is None
    run = mlflow.MlflowClient(store).get_run(logger.run_id)
    assert run.info.status == "FINISHED" and run.data.params["rate"] == "0.05"
    assert run.data.tags["neuraldbg.verdict"] == "failed" and run.data.tags["neuraldbg.cause"] == "nan_in_input"


def test_beside_autolog_there_is_still_one_run_and_its_flags_hold(store: str, tmp_path: Path) -> None:
    autolog(extra_tags={"team": "vision"})
    logger = mlflow_logger(tmp_path)
    fit(Net(), logger, NeuralDbgCallback(show=False))
    client = mlflow.MlflowClient(store)
    runs = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
    assert [run.info.run_id for run in runs] == [logger.run_id]
    assert runs[0].data.tags["neuraldbg.cause"] == "nan_in_input" and runs[0].data.tags["team"] == "vision"


def test_the_diagnosis_lies_in_the_run_of_the_wandb_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(project="p", offline=True, save_dir=tmp_path)
    try:
        fit(Net(), logger, NeuralDbgCallback(show=False))
        told = logger.experiment.summary
        assert (told["neuraldbg_verdict"], told["neuraldbg_cause"]) == ("failed", "nan_in_input")
        assert told["neuraldbg_first_step"] == 9
    finally:
        wandb.finish()


def test_reports_lie_in_the_folder_of_the_logger_and_compare_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = CSVLogger(tmp_path)
    fit(Net(0.02), logger, NeuralDbgCallback())
    folder = Path(logger.log_dir) / "neuraldbg"
    assert {"diagnosis.json", "journal.jsonl", "neuraldbg.html", "report.md"} <= {f.name for f in folder.iterdir()}
    assert f"NeuralDBG's report and journal are in {folder}" in capsys.readouterr().out
    (row,) = compare(tmp_path).rows
    assert (row.cause, row.step, row.parameters["rate"], row.parameters["name"]) == ("nan_in_input", 9, 0.02, "net")


def test_nothing_is_written_where_there_is_no_logger_or_the_switch_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(tmp_path.rglob("*"))
    fit(Net(), False, NeuralDbgCallback(show=False))
    assert set(tmp_path.rglob("*")) == before
    monkeypatch.setenv("NEURALDBG", "0")
    logger = CSVLogger(tmp_path / "logs")
    fit(Net(), logger, NeuralDbgCallback())
    assert not (Path(logger.log_dir) / "neuraldbg").exists()


def test_the_journal_lies_where_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURALDBG_DIR", str(tmp_path / "journals"))
    fit(Net(), False, NeuralDbgCallback(show=False))
    (journal,) = (tmp_path / "journals").iterdir()
    assert json.loads(journal.read_text().splitlines()[0])["kind"] == "header"


@pytest.mark.parametrize(("value", "count"), [("", 0), ("0", 0), ("2", 0), ("1", 1), ("true", 1)])
def test_the_environment_gives_every_trainer_a_callback(
    monkeypatch: pytest.MonkeyPatch, value: str, count: int
) -> None:
    monkeypatch.setenv("NEURALDBG", value)
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    assert sum(isinstance(c, NeuralDbgCallback) for c in trainer.callbacks) == count


def test_the_one_of_the_environment_leaves_the_fit_to_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURALDBG", "1")
    own = NeuralDbgCallback(show=False)
    trainer = fit(Net(), False, own)
    (other,) = [c for c in trainer.callbacks if isinstance(c, NeuralDbgCallback) and c is not own]
    assert own.diagnosis is not None and own.diagnosis.steps == 20 and other.diagnosis is None


def test_a_trainer_that_did_not_ask_for_us_loads_nothing_heavy_of_ours() -> None:
    code = (
        "import sys, lightning; lightning.Trainer(accelerator='cpu', logger=False, enable_checkpointing=False);"
        "print([name in sys.modules for name in ('neuraldbg.integrations.lightning', 'neuraldbg.watch', 'networkx')])"
    )
    env = {k: v for k, v in os.environ.items() if k != "NEURALDBG"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1] == "[True, False, False]", done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pytorch_lightning")
def test_a_trainer_of_pytorch_lightning_takes_the_callback_by_hand() -> None:
    import pytorch_lightning as twin

    class Old(twin.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(6, 3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return F.cross_entropy(self.body(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.05)

    callback = NeuralDbgCallback(show=False)
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = twin.Trainer(accelerator="cpu", max_epochs=1, logger=False, callbacks=[callback], **quiet)
    trainer.fit(Old(), broken())
    assert callback.diagnosis is not None and callback.diagnosis.top is not None
    assert (callback.diagnosis.top.cause, callback.diagnosis.top.step) == ("nan_in_input", 9)
