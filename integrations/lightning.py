"""NeuralDBG in a Lightning Trainer: one callback, and the run of its logger says why a fit failed.

    from neuraldbg.integrations.lightning import NeuralDbgCallback

    trainer = lightning.Trainer(callbacks=[NeuralDbgCallback()])

With NEURALDBG=1 in the environment every Trainer has one, by Lightning's entry point for callbacks. This is for the
package `lightning` (2.5 or newer). A Trainer of `pytorch_lightning`, its twin under the old name, takes the callback by
hand alone, and only where `lightning` is installed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._callback import check_settings, ended, may_stop
from ._following import quietly
from ._missing import missing

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise missing("lightning") from error

from neuraldbg import sinks
from neuraldbg.switch import is_on

if TYPE_CHECKING:  # every Trainer loads this module, by its entry point: what is heavy is imported where it is used
    from neuraldbg import NeuralDbg
    from neuraldbg.diagnosis import Diagnosis
    from neuraldbg.settings import Settings
    from neuraldbg.watch.stopping import OnFailure

__all__ = ["NeuralDbgCallback", "callbacks"]

FOLDER = "neuraldbg"  # in the logger's folder


class NeuralDbgCallback(Callback):  # type: ignore[misc]  # mypy does not read Lightning
    """Watches each `fit` of its Trainer, from after the model was wrapped to the fit's end or exception.

    settings, on_failure: those of `NeuralDbg`; "stop" ends the fit as `trainer.should_stop` does, on a single rank.
    sinks: where events and diagnosis go; by default into the run of each MLFlowLogger and WandbLogger of the Trainer,
    and into the folder of each CSVLogger and TensorBoardLogger. monitor: a metric logged in validation that is the
    loss there. show: print the diagnosis of a fit that was not healthy.

    Steps are `trainer.global_step`, as in the logger. With manual optimization they are rounds of the optimizers,
    counted from the start of this fit. Validation, tests and the sanity check are no training.
    `diagnosis` and `dbg` (the session) are there during the fit and after it, until the next one.
    Raises TypeError or ValueError for what `NeuralDbg` would not take.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        sinks: Sequence[sinks.Sink] | None = None,
        on_failure: OnFailure | None = None,
        monitor: str | None = "val_loss",
        show: bool = True,
    ) -> None:
        from neuraldbg.watch.stopping import checked

        check_settings(settings)
        self.show = show
        self.monitor = monitor
        self.dbg: NeuralDbg | None = None
        self._settings = settings
        self._on_failure = checked(on_failure)
        self._sinks = sinks
        self._open = self._stopped = False
        self._yields = False  # to another one of the same Trainer
        self._folders: list[Path] = []

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Of the fit so far, or of the last one; None before the first."""
        return self.dbg.diagnose() if self.dbg is not None else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._begin, trainer, pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        quietly(self._set_step, trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        quietly(self._stop, trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._validated, trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        quietly(self._end, trainer, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        quietly(self._end, trainer, exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        quietly(self._end, trainer, None)  # a fit that Lightning's tuner leaves comes through here alone

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also one in a spawned process, watches nothing until its own fit starts."""
        return {**self.__dict__, "dbg": None, "_open": False}

    def _begin(self, trainer: Any, pl_module: Any) -> None:
        from neuraldbg import NeuralDbg

        if self._yields and any(isinstance(c, NeuralDbgCallback) and c is not self for c in trainer.callbacks):
            return
        self._folders = []
        given: list[sinks.Sink] = list(self._sinks) if self._sinks is not None else []
        replaced: list[sinks.Factory] = []
        if self._sinks is None and trainer.is_global_zero:
            for logger in trainer.loggers:
                quietly(self._add_sinks, logger, pl_module, given, replaced)
        for factory in replaced:
            sinks.remove_factory(factory)
        try:
            self.dbg = NeuralDbg(pl_module, settings=self._settings, sinks=given, on_failure=self._on_failure)
            self.dbg.__enter__()
            self._open, self._stopped = True, False
        finally:
            for factory in replaced:
                sinks.add_factory(factory)

    def _add_sinks(self, logger: Any, pl_module: Any, given: list[sinks.Sink], replaced: list[sinks.Factory]) -> None:
        """Where the diagnosis goes in the run of this logger; a tracker's `autolog` would not find that run."""
        kinds = {kind.__name__ for kind in type(logger).__mro__}
        if "MLFlowLogger" in kinds:  # it writes by a client, so its run is never the active one
            from . import mlflow

            following = mlflow.following
            flags = {**(following.flags if following.is_on else {}), "run_id": logger.run_id}
            given.append(mlflow.MlflowSink(**flags, tracking_uri=logger._tracking_uri))
            replaced += [following.factory] if following.is_on else []
        elif "WandbLogger" in kinds:
            from . import wandb

            following = wandb.following
            given.append(wandb.WandbSink(logger.experiment, **(following.flags if following.is_on else {})))
            replaced += [following.factory] if following.is_on else []
        elif kinds & {"CSVLogger", "TensorBoardLogger"} and "://" not in str(logger.log_dir):
            folder = Path(logger.log_dir) / FOLDER
            given.append(_folder_sink(folder, pl_module, self._settings))
            self._folders.append(folder)

    def _set_step(self, trainer: Any, pl_module: Any) -> None:
        if self._open and self.dbg is not None and pl_module.automatic_optimization:
            self.dbg.step = trainer.global_step

    def _stop(self, trainer: Any) -> None:
        if not self._open or self.dbg is None or not self.dbg.should_stop or self._stopped:
            return
        self._stopped = True
        if may_stop(trainer.world_size, "a fit"):
            trainer.should_stop = True

    def _validated(self, trainer: Any) -> None:
        if not self._open or self.dbg is None or trainer.sanity_checking or self.monitor is None:
            return
        value = trainer.callback_metrics.get(self.monitor)
        if value is not None:
            self.dbg.record_validation_loss(value)

    def _end(self, trainer: Any, error: BaseException | None) -> None:
        if not self._open or self.dbg is None:
            return
        self._open = False
        found = ended(self.dbg, error)
        if self.show and trainer.is_global_zero and self.dbg.settings.enabled and str(found.verdict) != "healthy":
            print(found)
            for folder in self._folders:
                print(f"NeuralDBG's report and journal are in {folder}")


def _folder_sink(folder: Path, pl_module: Any, settings: Settings | None) -> sinks.Sink:
    """Reports and journal in a folder of the logger's, with the hyper-parameters, which `neuraldbg compare` reads."""
    from neuraldbg.runfolder import FolderSink, RunFolder
    from neuraldbg.settings import make

    plain = {k: v for k, v in pl_module.hparams.items() if isinstance(v, (str, int, float, bool))}
    command = {"arguments": [f"{name}={value}" for name, value in plain.items()]}
    return FolderSink(RunFolder(folder, command), (settings or make()).journal_mb, lambda diagnosis: None)


def callbacks() -> list[Callback]:
    """What Lightning asks of every installed package: a callback where the environment says NEURALDBG=1.

    It leaves the fit to a callback that the Trainer was given by hand.
    """
    if not is_on():
        return []
    made = NeuralDbgCallback()
    made._yields = True
    return [made]
