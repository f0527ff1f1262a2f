"""NeuralDBG in MLflow: one line before training, and each run says why it failed.

    import neuraldbg.integrations.mlflow
    neuraldbg.integrations.mlflow.autolog()

Training inside a run is then watched without any other line; a `NeuralDbg` session of yours reports into the run too.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ._following import Following, called_after, called_before, is_helper, refuse
from ._missing import missing

try:
    import mlflow
except ImportError as error:
    raise missing("mlflow") from error

from ._mlflow_sink import MlflowSink, check
from ._mlflow_spool import replay
from ._mlflow_view import install_view

__all__ = ["MlflowSink", "autolog", "install_view", "replay"]

PARENT = "mlflow.parentRunId"

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
    refuse(unknown, flags)
    check(create_run=create_run, flush_interval=flush_interval, close_timeout=close_timeout, extra_tags=extra_tags)
    if disable:
        following.turn_off()
    else:
        following.turn_on(flags)


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
    if is_helper():
        return None
    from neuraldbg.watch import discover

    sink = MlflowSink(**following.flags)
    if not discover.is_starting():
        _unbound.add(sink)
    return sink


def _bind_sinks() -> None:
    """Sessions of the user's own learn their run at the first optimizer step inside it; the others from `discover`."""
    for sink in list(_unbound):
        if sink.bind():
            _unbound.discard(sink)


def _run_starts() -> None:
    from neuraldbg.watch import discover

    discover.run_started()


def _run_ends(*_: Any) -> None:
    run = mlflow.active_run()
    if run is not None:
        _ending(run)


def _ending(run: mlflow.ActiveRun, *error: Any) -> None:
    from neuraldbg.watch import discover

    discover.run_ending(run.info.run_id, error or (None, None, None))


following = Following(
    _sink,
    active_runs,
    _bind_sinks,
    (
        partial(called_after, mlflow, "start_run", _run_starts),
        partial(called_before, mlflow, "end_run", _run_ends),
        partial(called_before, mlflow.ActiveRun, "__exit__", _ending),  # a `with` block does not pass through end_run
    ),
)
