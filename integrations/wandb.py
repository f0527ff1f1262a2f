"""NeuralDBG in W&B: one line before training, and each run says why it failed.

    import neuraldbg.integrations.wandb
    neuraldbg.integrations.wandb.autolog()

Training inside a run is then watched without any other line; a `NeuralDbg` session of yours reports into the run too.
Without `autolog`, `NeuralDbg(model, sinks=[WandbSink(run)])` does so for one session.
"""

from __future__ import annotations

import atexit
import weakref
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ._following import Following, called_after, called_before, quietly, refuse
from ._missing import missing

try:
    import wandb
except ImportError as error:
    raise missing("wandb") from error

from ._wandb_contact import active
from ._wandb_sink import WandbSink, check

__all__ = ["WandbSink", "autolog"]

_sinks: weakref.WeakSet[WandbSink] = weakref.WeakSet()


def autolog(
    *,
    disable: bool = False,
    silent: bool = False,
    log_history: bool = True,
    log_summary: bool = True,
    log_config: bool = True,
    log_tags: bool = True,
    log_graph: bool = True,
    log_files: bool = True,
    log_artifacts: bool = True,
    alert: bool = False,
    close_timeout: float = 10.0,
    spool_dir: Path | str | None = None,
    **unknown: NoReturn,
) -> None:
    """Watch every training from now on and report into the active W&B run; calling it again changes the flags.

    disable: undo it all. The other flags are those of `WandbSink`. A training without a run is watched too, and its
    report stays on disk; in mode "disabled" nothing is written at all.
    Raises TypeError for an unknown flag, ValueError for a close_timeout that is not positive.
    """
    flags = {
        "silent": silent,
        "log_history": log_history,
        "log_summary": log_summary,
        "log_config": log_config,
        "log_tags": log_tags,
        "log_graph": log_graph,
        "log_files": log_files,
        "log_artifacts": log_artifacts,
        "alert": alert,
        "close_timeout": close_timeout,
        "spool_dir": spool_dir,
    }
    refuse(unknown, flags)
    check(run=None, close_timeout=close_timeout)
    if disable:
        following.turn_off()
    else:
        following.turn_on(flags)
        _watch_exit()


def active_runs() -> tuple[str, ...]:
    """The process's active run; runs made with reinit="create_new" are not active in this sense."""
    run = active()
    return () if run is None else (str(run.id),)


def _sink() -> WandbSink:
    sink = WandbSink(**following.flags)
    _sinks.add(sink)
    return sink


def _bind_sinks() -> None:
    """A session learns its run at the first optimizer step inside it at the latest."""
    for sink in list(_sinks):
        if sink.run is None:
            sink.bind()


def _ending(run: wandb.Run, *error: Any) -> None:
    """The run ends: automatic sessions in it end before, and sessions of the user's own tell what they know so far."""
    from neuraldbg.watch import discover

    discover.run_ending(str(run.id), error or (None, None, None))
    for sink in list(_sinks):
        if sink.run is run:
            sink.run_ending(str(run.id))


def _watch_exit() -> None:
    """At the interpreter's exit wandb closes its connection; what is registered later is called before that."""
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _at_exit() -> None:
    run = active()
    if run is not None and following.is_on:
        quietly(_ending, run)


def _run_starts() -> None:
    """A model that was trained in an earlier run is watched again before its first forward pass in this one."""
    from neuraldbg.watch import discover

    _watch_exit()
    discover.run_started()


def _run_ends(run: wandb.Run, *_: Any) -> None:
    _ending(run)


following = Following(
    _sink,
    active_runs,
    _bind_sinks,
    (
        partial(called_after, wandb, "init", _run_starts),
        # wandb.finish(), and a new init in the place of an old run, come through here too
        partial(called_before, wandb.Run, "finish", _run_ends),
        partial(called_before, wandb.Run, "__exit__", _ending),  # a `with` block does not pass through finish
    ),
)
