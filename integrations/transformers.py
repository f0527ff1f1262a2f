"""NeuralDBG in the Trainer of transformers: one callback, and the tracked run says why a training failed.

    from neuraldbg.integrations.transformers import NeuralDbgCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[NeuralDbgCallback()])

It sees the loss before Trainer leaves what is not finite out of its log (`logging_nan_inf_filter`), and gradients
before they are clipped. A loop of one's own with `accelerate` needs none: `with NeuralDbg(model): ...`.
"""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ._missing import missing

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise missing("transformers") from error

from neuraldbg import NeuralDbg, sinks
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.settings import Settings

__all__ = ["NeuralDbgCallback"]

log = logging.getLogger("neuraldbg")


class NeuralDbgCallback(TrainerCallback):
    """Watches each `train()` of its Trainer.

    settings, on_failure: those of `NeuralDbg`. sinks: where events and diagnosis go; by default into the MLflow or W&B
    run that Trainer's own callback (`report_to`) reports into. show: print the diagnosis of a training that was not
    healthy.

    Steps are counted as in a plain loop: one for each step of the optimizer, whatever is accumulated; an evaluation is
    no training. Trainer tells no callback of an exception: the session is then closed when its `diagnosis` is asked
    for, when `train()` is called again, or when the process ends.
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
        self._open = False
        self.dbg: NeuralDbg | None = None
        end = weakref.WeakMethod(self._end)
        atexit.register(lambda: (close := end()) and close())

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Of the training so far, or of the last one; None before the first."""
        if self._open and not _training():
            self._quietly(self._end)
        return self.dbg.diagnose() if self.dbg is not None else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._quietly(self._begin, args, state, kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.dbg is not None and self.dbg.should_stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._quietly(self._end)

    def __getstate__(self) -> dict[str, Any]:
        """A copy watches nothing until its own training begins."""
        return {**self.__dict__, "dbg": None, "_open": False}

    def _begin(self, args: Any, state: Any, model: Any) -> None:
        self._end()
        given = self._sinks
        if given is None and state.is_world_process_zero:
            given = sinks_of(args.report_to)
        self.dbg = NeuralDbg(model, sinks=given, **self._make)
        self.dbg.__enter__()
        self._open = True
        self._first = state.is_world_process_zero

    def _end(self) -> None:
        if self.dbg is None or not self._open:
            return
        self._open = False
        self.dbg.finish()
        found = self.dbg.diagnose()
        if self.show and self._first and found.verdict is not Verdict.HEALTHY:
            print(found)

    def _quietly(self, step: Callable[..., None], *arguments: Any) -> None:
        """An error of ours is said once and leaves the Trainer alone."""
        try:
            step(*arguments)
        except Exception as error:
            if sinks.strict():
                raise
            log.error("NeuralDBG stopped watching this training: %r", error, exc_info=error)


def _training() -> bool:
    """Whether some thread is inside a Trainer's loop."""
    loop = Trainer._inner_training_loop.__code__
    for frame in sys._current_frames().values():
        above: Any = frame
        while above is not None:
            if above.f_code is loop:
                return True
            above = above.f_back
    return False


def sinks_of(report_to: Sequence[str]) -> list[sinks.Sink]:
    """Where a diagnosis goes: the runs that Trainer's own callbacks have opened by now (they come before ours)."""
    out: list[sinks.Sink] = []
    if "mlflow" in report_to:
        import mlflow

        from .mlflow import MlflowSink

        run = mlflow.active_run()
        if run is not None:
            out.append(MlflowSink(run_id=run.info.run_id))
    if "wandb" in report_to:
        import wandb

        from .wandb import WandbSink

        if wandb.run is not None:
            out.append(WandbSink(wandb.run))
    return out
