"""NeuralDBG in a Lightning Trainer: one callback, and the run of its logger says why a fit failed.

    from neuraldbg.integrations.lightning import NeuralDbgCallback

    trainer = lightning.Trainer(callbacks=[NeuralDbgCallback()])

With NEURALDBG=1 in the environment every Trainer has one, by Lightning's entry point for callbacks. This is for the
package `lightning`; a Trainer of `pytorch_lightning` takes callbacks of its own package only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from ._missing import missing

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise missing("lightning") from error

from neuraldbg import NeuralDbg, sinks
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.settings import Settings

__all__ = ["NeuralDbgCallback", "callbacks"]

log = logging.getLogger("neuraldbg")


class NeuralDbgCallback(Callback):
    """Watches each `fit` of its Trainer, from after the model was wrapped to the fit's end or exception.

    settings, on_failure: those of `NeuralDbg`. sinks: where events and diagnosis go; by default into the run of each
    MLFlowLogger and WandbLogger of the Trainer. show: print the diagnosis of a fit that was not healthy.

    Steps are counted as in a plain loop: one for each round of the optimizers, whatever is accumulated. Validation,
    tests and the sanity check are no training.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        sinks: Sequence[sinks.Sink] | None = None,
        on_failure: str | Callable[[Diagnosis], Any] | None = None,
        show: bool = True,
    ) -> None:
        self.show = show
        self._make: dict[str, Any] = {"settings": settings, "on_failure": on_failure}
        self._sinks = sinks
        self.dbg: NeuralDbg | None = None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Of the fit so far, or of the last one; None before the first."""
        return self.dbg.diagnose() if self.dbg is not None else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._quietly(self._begin, trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.dbg is not None and self.dbg.should_stop:
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._quietly(self._end, trainer, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._quietly(self._end, trainer, exception)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also one in a spawned process, watches nothing until its own fit starts."""
        return {**self.__dict__, "dbg": None}

    def _begin(self, trainer: Any, pl_module: Any) -> None:
        given = self._sinks
        if given is None and trainer.is_global_zero:
            given = [sink for logger in trainer.loggers if (sink := sink_of(logger)) is not None]
        self.dbg = NeuralDbg(pl_module, sinks=given, **self._make)
        self.dbg.__enter__()

    def _end(self, trainer: Any, error: BaseException | None) -> None:
        dbg = self.dbg
        if dbg is None:
            return
        dbg.__exit__(*((type(error), error, error.__traceback__) if error is not None else (None, None, None)))
        found = dbg.diagnose()
        if self.show and trainer.is_global_zero and found.verdict is not Verdict.HEALTHY:
            print(found)

    def _quietly(self, step: Callable[..., None], *arguments: Any) -> None:
        """An error of ours is said once and leaves the Trainer alone."""
        try:
            step(*arguments)
        except Exception as error:
            if sinks.strict():
                raise
            log.error("NeuralDBG stopped watching this fit: %r", error, exc_info=error)


def sink_of(logger: Any) -> sinks.Sink | None:
    """Where a diagnosis goes in the run of this Lightning logger; None for loggers of other trackers."""
    kind = type(logger).__name__
    if kind == "MLFlowLogger":  # it writes by a client, so the run is never the active one
        from .mlflow import MlflowSink

        return MlflowSink(run_id=logger.run_id, tracking_uri=logger._tracking_uri)
    if kind == "WandbLogger":
        from .wandb import WandbSink

        return WandbSink(logger.experiment)
    return None


def callbacks() -> list[Callback]:
    """What Lightning asks of every installed package: a callback where the environment says NEURALDBG=1."""
    return [NeuralDbgCallback()] if os.environ.get("NEURALDBG") == "1" else []
