"""NeuralDBG in W&B: one line before training, and each run says why it failed.

    import neuraldbg.integrations.wandb
    neuraldbg.integrations.wandb.autolog()

Training inside a run is then watched without any other line; a `NeuralDbg` session of yours reports into the run too.
Without `autolog`, `NeuralDbg(model, sinks=[WandbSink(run)])` does so for one session.
"""

from __future__ import annotations

import atexit
import functools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ._following import quietly, replaced
from ._missing import missing

try:
    import wandb
except ImportError as error:
    raise missing("wandb") from error

from neuraldbg import sinks

from ._wandb_contact import active
from ._wandb_sink import WandbSink, check

__all__ = ["WandbSink", "autolog"]

_flags: dict[str, Any] = {}
_undo: list[Callable[[], None]] = []
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
    if unknown:
        raise TypeError(f"autolog() has no flag {next(iter(unknown))!r}; its flags are: disable, {', '.join(flags)}")
    check(run=None, close_timeout=close_timeout)
    from neuraldbg.watch import discover  # torch, which looking at runs with this module does not need

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
        _undo.extend((_wrap_init(), _wrap_finish(), _wrap_exit()))
    discover.enable(active_runs, _bind_sinks)
    _watch_exit()


def active_runs() -> tuple[str, ...]:
    """The process's active run; runs made with reinit="create_new" are not active in this sense."""
    run = active()
    return () if run is None else (str(run.id),)


def _sink() -> WandbSink:
    sink = WandbSink(**_flags)
    _sinks.add(sink)
    return sink


def _bind_sinks() -> None:
    """A session learns its run at the first optimizer step inside it at the latest."""
    for sink in list(_sinks):
        if sink.run is None:
            sink.bind()


def _ending(run: wandb.Run, error: tuple[Any, Any, Any] = (None, None, None)) -> None:
    """The run ends: automatic sessions in it end before, and sessions of the user's own tell what they know so far."""
    from neuraldbg.watch import discover

    discover.run_ending(str(run.id), error)
    for sink in list(_sinks):
        if sink.run is run:
            sink.run_ending(str(run.id))


def _watch_exit() -> None:
    """At the interpreter's exit wandb closes its connection; what is registered later is called before that."""
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _at_exit() -> None:
    run = active()
    if run is not None and _undo:
        quietly(_ending, run)


def _wrap_init() -> Callable[[], None]:
    """A model that was trained in an earlier run is watched again before its first forward pass in this one."""
    from neuraldbg.watch import discover

    original: Callable[..., Any] = wandb.init

    @functools.wraps(original)
    def init(*arguments: Any, **named: Any) -> Any:
        run = original(*arguments, **named)
        _watch_exit()
        quietly(discover.run_started)
        return run

    return replaced(wandb, "init", init)


def _wrap_finish() -> Callable[[], None]:
    """`wandb.finish()` and a new `init` in place of an old run come through here too."""
    original = wandb.Run.finish

    @functools.wraps(original)
    def finish(self: wandb.Run, *arguments: Any, **named: Any) -> Any:
        try:
            quietly(_ending, self)
        finally:  # the run ends, also where the user interrupts our diagnosis
            ended = original(self, *arguments, **named)
        return ended

    return replaced(wandb.Run, "finish", finish)


def _wrap_exit() -> Callable[[], None]:
    """The end of a `with wandb.init() as run:` block, which does not pass through `finish`."""
    original: Callable[..., Any] = wandb.Run.__exit__

    @functools.wraps(original)
    def leave(self: wandb.Run, *error: Any) -> Any:
        try:
            quietly(_ending, self, error)
        finally:
            left = original(self, *error)
        return left

    return replaced(wandb.Run, "__exit__", leave)
