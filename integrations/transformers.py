"""NeuralDBG in the Trainer of transformers: one callback, and the tracked run says why a training failed.

    from neuraldbg.integrations.transformers import NeuralDbgCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[NeuralDbgCallback()])

It sees the loss before Trainer leaves what is not finite out of its log (`logging_nan_inf_filter`), and gradients
before they are clipped. A loop of one's own with `accelerate` needs none: `with NeuralDbg(model): ...`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ._callback import check_settings, ended, may_stop
from ._following import quietly, replaced
from ._missing import missing

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise missing("transformers") from error

from neuraldbg import NeuralDbg, sinks
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.settings import Settings
from neuraldbg.watch.stopping import OnFailure, checked

__all__ = ["NeuralDbgCallback"]

MARK = "_neuraldbg_follows"


class NeuralDbgCallback(TrainerCallback):  # type: ignore[misc]
    """Watches each `train()` of its Trainer, to its end or exception.

    settings, on_failure: those of `NeuralDbg`; "stop" ends the training as `control.should_training_stop` does, on a
    single rank. sinks: where events and diagnosis go; by default into the MLflow or W&B run that Trainer's own callback
    (`report_to`) reports into. show: print the diagnosis of a training that was not healthy.

    Steps are `state.global_step` before the step, also after `resume_from_checkpoint`; a step's loss is the one that
    Trainer averages for its log, before anything is left out. An evaluation is no training; its `eval_loss` is the
    validation loss. `diagnosis` and `dbg` (the session) are there during a training and after it, until the next one.
    Raises TypeError or ValueError for what `NeuralDbg` would not take.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        sinks: Sequence[sinks.Sink] | None = None,
        on_failure: OnFailure | None = None,
        show: bool = True,
    ) -> None:
        check_settings(settings)
        self.show = show
        self.dbg: NeuralDbg | None = None
        self._settings = settings
        self._on_failure = checked(on_failure)
        self._sinks = sinks
        self._open = self._first = self._stopped = False
        self._unbound: list[Any] = []
        self._losses: list[Any] = []  # of the micro-batches of the open step
        _follow()

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Of the training so far, or of the last one; None before the first."""
        return self.dbg.diagnose() if self.dbg is not None else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._begin, args, state, kwargs["model"])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._set_step, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._step_ends, args, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        quietly(self._evaluated, metrics or {})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        quietly(self._end)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also one in a spawned process, watches nothing until its own training begins."""
        return {**self.__dict__, "dbg": None, "_open": False, "_unbound": [], "_losses": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _follow()

    def _begin(self, args: Any, state: Any, model: Any) -> None:
        self._end()
        self.dbg = None  # what is asked from here on is asked of this training
        self._stopped, self._first = False, state.is_world_process_zero
        given = list(self._sinks) if self._sinks is not None else []
        if self._sinks is None and self._first:
            given = sinks_of(args.report_to)
        self._unbound = [s for s in given if self._sinks is None and getattr(s, "run_id", "") is None]
        dbg = NeuralDbg(model, settings=self._settings, sinks=given, on_failure=self._on_failure)
        dbg.__enter__()
        self.dbg, self._open = dbg, True
        self._losses = []
        self._set_step(state.global_step)

    def _set_step(self, step: int) -> None:
        if self._open and self.dbg is not None:
            self.dbg.step = step

    def _add(self, loss: Any) -> None:
        if self._open:
            self._losses.append(loss.detach())

    def _record(self, share: float = 1.0) -> None:
        """The open step's loss: Trainer has divided each micro-batch's by their number, or by the step's tokens."""
        losses, self._losses = self._losses, []
        if losses and self.dbg is not None:
            self.dbg.record_loss(sum(losses[1:], losses[0]) / share)

    def _step_ends(self, args: Any, control: Any) -> None:
        """The step stays open until the next one begins: a validation loss belongs to the step before it."""
        if not self._open or self.dbg is None:
            return
        self._record()
        self._unbound = [s for s in self._unbound if not s.bind()]
        if self.dbg.should_stop and not self._stopped:
            self._stopped = True
            if may_stop(args.world_size, "a training"):
                control.should_training_stop = True

    def _evaluated(self, metrics: dict[str, Any]) -> None:
        value = metrics.get("eval_loss")
        if self._open and self.dbg is not None and value is not None:
            self.dbg.record_validation_loss(value)

    def _end(self, error: BaseException | None = None, micro_batches: int = 1) -> None:
        if not self._open or self.dbg is None:
            return
        self._open = False
        self._record(len(self._losses) / micro_batches)
        for sink in self._unbound:
            sink.bind()
        found = ended(self.dbg, error)
        if self.show and self._first and self.dbg.settings.enabled and found.verdict is not Verdict.HEALTHY:
            print(found)


def _follow() -> None:
    """Trainer tells its callbacks of no exception and of no loss: `train` of a Trainer that has ours does."""
    original = Trainer.train
    if getattr(original, MARK, False):
        return

    @functools.wraps(original)
    def train(self: Any, *arguments: Any, **named: Any) -> Any:
        ours = [c for c in self.callback_handler.callbacks if isinstance(c, NeuralDbgCallback)]
        if not ours or hasattr(self.training_step, MARK):  # the latter where others wrapped ours and we wrapped theirs
            return original(self, *arguments, **named)
        undo = _tell_losses(self, ours)
        try:
            return original(self, *arguments, **named)
        except BaseException as error:
            for callback in ours:
                quietly(callback._end, error, self.args.gradient_accumulation_steps)
            raise
        finally:
            undo()

    setattr(train, MARK, True)
    replaced(Trainer, "train", train)


def _tell_losses(trainer: Any, ours: Sequence[NeuralDbgCallback]) -> Callable[[], None]:
    """What `training_step` returns is also given to our callbacks; what undoes it."""
    before = trainer.__dict__.get("training_step")
    original = trainer.training_step

    @functools.wraps(original)
    def training_step(*arguments: Any, **named: Any) -> Any:
        loss = original(*arguments, **named)
        for callback in ours:
            quietly(callback._add, loss)
        return loss

    setattr(training_step, MARK, True)
    trainer.training_step = training_step

    def undo() -> None:
        if trainer.__dict__.get("training_step") is training_step:
            if before is None:
                del trainer.training_step
            else:
                trainer.training_step = before

    return undo


def sinks_of(report_to: Sequence[str]) -> list[sinks.Sink]:
    """Where a diagnosis goes: the runs of Trainer's own callbacks (they come before ours), unless `autolog` is on."""
    out: list[sinks.Sink] = []
    if "mlflow" in report_to:
        from . import mlflow

        if not mlflow.following.is_on:
            sink = mlflow.MlflowSink()
            sink.bind()  # a second `train()` gets its run later, with the first line of its log
            out.append(sink)
    if "wandb" in report_to:
        from . import wandb
        from ._wandb_contact import active

        run = active()
        if not wandb.following.is_on and run is not None:
            out.append(wandb.WandbSink(run))
    return out
