"""NeuralDBG in MLflow: one line before training, and each run says why it failed.

    import neuraldbg.integrations.mlflow
    neuraldbg.integrations.mlflow.autolog()

Training inside a run is then watched without any other line; a `NeuralDbg` session of yours reports into the run too.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ._following import quietly, replaced
from ._missing import missing

try:
    import mlflow
except ImportError as error:
    raise missing("mlflow") from error

from neuraldbg import sinks

from ._mlflow_sink import MlflowSink, check
from ._mlflow_spool import replay
from ._mlflow_view import install_view

__all__ = ["MlflowSink", "autolog", "install_view", "replay"]

PARENT = "mlflow.parentRunId"

_flags: dict[str, Any] = {}
_undo: list[Callable[[], None]] = []
_parents: dict[str, str] = {}
_unbound: weakref.WeakSet[MlflowSink] = weakref.WeakSet()


def autolog(
    *,
    disable: bool = False,
    silent: bool = False,
    exclusive: bool = False,
    run_id: str | None = None,
    create_run: str = "if_none",
    log_tags: bool = True,
    log_metrics: bool = True,
    log_artifacts: bool = True,
    log_description: bool = True,
    extra_tags: Mapping[str, str] | None = None,
    flush_interval: float = 5.0,
    close_timeout: float = 10.0,
    spool_dir: Path | str | None = None,
    **unknown: NoReturn,
) -> None:
    """Watch every training from now on and report into the active MLflow run; calling it again changes the flags.

    disable: undo it all. silent: no warnings. exclusive: report into runs of our own, never into one that you made.
    run_id: report into this run, whichever is active. create_run: "if_none" makes a run where none was active, and
    ends it; "leave_open" leaves it running; "never" makes none. log_tags, log_metrics, log_artifacts,
    log_description: what is written. extra_tags: further tags. flush_interval: seconds between live updates.
    close_timeout: seconds that the end of a session may wait for the server; what did not arrive is kept in
    `spool_dir` (`.neuraldbg/mlflow` here, by default) for `replay`.
    """
    flags = {
        "silent": silent,
        "exclusive": exclusive,
        "run_id": run_id,
        "create_run": create_run,
        "log_tags": log_tags,
        "log_metrics": log_metrics,
        "log_artifacts": log_artifacts,
        "log_description": log_description,
        "extra_tags": extra_tags,
        "flush_interval": flush_interval,
        "close_timeout": close_timeout,
        "spool_dir": spool_dir,
    }
    if unknown:
        raise TypeError(f"autolog() has no flag {next(iter(unknown))!r}; its flags are: disable, {', '.join(flags)}")
    check(create_run=create_run, flush_interval=flush_interval, close_timeout=close_timeout, extra_tags=extra_tags)
    from neuraldbg.watch import discover  # torch, which reading runs with this module does not need

    if disable:
        discover.disable(active_runs, _bind_sinks)
        sinks.remove_factory(_sink)
        for undo in _undo:
            undo()
        _undo.clear()
        return
    _flags.clear()
    _flags.update(flags)
    sinks.add_factory(_sink)
    if not _undo:
        _undo.extend((_wrap_start_run(), _wrap_end_run(), _wrap_exit()))
    discover.enable(active_runs, _bind_sinks)


def active_runs() -> tuple[str, ...]:
    """The training thread's active run, its parent and so on: MLflow gives the innermost, and its tag the parent."""
    run = mlflow.active_run()
    if run is None:
        return ()
    ids = [run.info.run_id]
    parent = run.data.tags.get(PARENT)
    if parent is not None:
        _parents[run.info.run_id] = parent
    while (above := _parents.get(ids[-1])) is not None and above not in ids:
        ids.append(above)
    return tuple(ids)


def _sink() -> MlflowSink | None:
    """The sink of a session that starts; of a distributed training only rank 0 reports."""
    if os.environ.get("RANK", "0") not in ("", "0"):
        return None
    from neuraldbg.watch import discover

    sink = MlflowSink(**_flags)
    if not discover.is_starting():
        _unbound.add(sink)
    return sink


def _bind_sinks() -> None:
    """Sessions of the user's own learn their run at the first optimizer step inside it; the others from `discover`."""
    for sink in list(_unbound):
        if sink.bind():
            _unbound.discard(sink)


def _wrap_start_run() -> Callable[[], None]:
    from neuraldbg.watch import discover

    original = mlflow.start_run

    @functools.wraps(original)
    def start_run(*arguments: Any, **named: Any) -> Any:
        run = original(*arguments, **named)
        quietly(discover.run_started)
        return run

    return replaced(mlflow, "start_run", start_run)


def _wrap_end_run() -> Callable[[], None]:
    from neuraldbg.watch import discover

    original = mlflow.end_run

    @functools.wraps(original)
    def end_run(*arguments: Any, **named: Any) -> Any:
        try:
            run = mlflow.active_run()
            if run is not None:
                quietly(discover.run_ending, run.info.run_id)
        finally:  # the run ends, also where the user interrupts our diagnosis
            ended = original(*arguments, **named)
        return ended

    return replaced(mlflow, "end_run", end_run)


def _wrap_exit() -> Callable[[], None]:
    """The end of a `with mlflow.start_run():` block, which does not pass through `mlflow.end_run`."""
    from neuraldbg.watch import discover

    original: Callable[..., Any] = mlflow.ActiveRun.__exit__

    @functools.wraps(original)
    def leave(self: mlflow.ActiveRun, *error: Any) -> Any:
        try:
            quietly(discover.run_ending, self.info.run_id, error)
        finally:  # the run ends, also where the user interrupts our diagnosis
            left = original(self, *error)
        return left

    return replaced(mlflow.ActiveRun, "__exit__", leave)
