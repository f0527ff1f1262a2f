"""The user's W&B run as we may use it: attached to, never made, never finished, and no error of it goes further.

What never blocks (history, summary, config, tags, files, alerts) is called from the sink's own worker. A Table and an
artifact ask the server and block for 19 s when it is gone, so `Slow` sends them from a thread that nobody waits for
longer than the deadline.
"""

from __future__ import annotations

import glob
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import wandb

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.record import RunFacts

from . import _wandb_content as content

log = logging.getLogger("neuraldbg")

GIVE_UP_AFTER = 3  # failures in a row: wandb-core is gone or the run has finished, and each further call fails too

_inherited: list[weakref.ref[Any]] = []  # runs of a parent process: logging into one from a fork reaches the parent's


def _after_fork() -> None:
    run = wandb.run
    if run is not None:
        _inherited.append(weakref.ref(run))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def active() -> Any | None:
    """This process's active run, also a disabled one."""
    run = wandb.run
    return None if run is None or any(ref() is run for ref in _inherited) else run


class Contact:
    """A run, and what went wrong with it first."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.id = str(run.id)
        self.files = Path(run.dir)
        self.error: Exception | None = None
        self._failures = 0
        self._greeted = False

    @property
    def is_lost(self) -> bool:
        return self._failures >= GIVE_UP_AFTER

    @property
    def beside(self) -> Path:
        """A folder of the run's own that W&B does not upload by itself."""
        return self.files.parent / content.FOLDER

    def attempt(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
        """Call W&B; whether it went well. An error is kept, and after several in a row nothing is called any more."""
        if self.is_lost:
            return False
        try:
            function(*arguments, **named)
        except Exception as error:
            self.error = self.error or error
            self._failures += 1
            log.debug("W&B run %s did not take a call", self.id, exc_info=error)
            return False
        self._failures = 0
        return True

    def greet(self) -> None:
        """Once: our own axis, so that our panels do not depend on the run's steps, and a column that says we watch."""
        if self._greeted:
            return
        self._greeted = True
        self.attempt(self.run.define_metric, "neuraldbg/*", step_metric=content.STEP, step_sync=False)

    def history(self, point: Mapping[str, Any]) -> bool:
        """Into the row that is open: no row begins or ends by it, which a plain `log` would bring about."""
        return self.attempt(self.run.log, dict(point), commit=False)

    def summary(self, values: Mapping[str, Any]) -> bool:
        return self.attempt(self.run.summary.update, dict(values))

    def told_before(self) -> int:
        """How many sessions the run told of before it was resumed."""
        found: list[Any] = []
        if getattr(self.run, "resumed", False):
            self.attempt(lambda: found.append(self.run.summary.get("neuraldbg_sessions")))
        return int(found[0]) if found and isinstance(found[0], (int, float)) else 0

    def forget(self, columns: Iterable[str]) -> bool:
        """Take columns of an earlier session away, for an empty cell is no statement of a later one's."""
        return self.attempt(self._forget, tuple(columns))

    def _forget(self, columns: tuple[str, ...]) -> None:
        there = set(self.run.summary.keys())
        for name in columns:
            if name in there:
                del self.run.summary[name]

    def config(self, values: Mapping[str, Any]) -> bool:
        return self.attempt(self.run.config.update, {content.FOLDER: dict(values)}, allow_val_change=True)

    def tags(self, ours: tuple[str, ...]) -> bool:
        return self.attempt(self._tag, ours)

    def _tag(self, ours: tuple[str, ...]) -> None:
        """W&B drops a whole list for one tag that it does not take, and only prints so."""
        self.run.tags = content.merged_tags(self.run.tags or (), ours)
        left_out = set(ours) - set(self.run.tags or ())
        if left_out:
            raise ValueError(f"W&B did not take the tags {sorted(left_out)}")

    def alert(self, title: str, text: str, level: str) -> bool:
        return self.attempt(self.run.alert, title, text, level=level)

    def graph(self, page: str, step: int, *, in_history: bool) -> bool:
        return self.attempt(self._graph, page, step, in_history)

    def _graph(self, page: str, step: int, in_history: bool) -> None:
        drawn = wandb.Html(page, inject=False, data_is_not_path=True)
        if in_history:  # a panel is drawn for what is in the history
            self.run.log({content.GRAPH: drawn, content.STEP: step}, commit=False)
        else:
            self.run.summary[content.GRAPH] = drawn

    def save(self, folder: Path) -> bool:
        """Files that lie in the run's own folder go to W&B as they are."""
        return self.attempt(self._save, folder)

    def _save(self, folder: Path) -> None:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                self.run.save(glob.escape(str(file)), base_path=str(self.files), policy="now")


class Slow:
    """A sink for the table and the artifact alone; `contact` and `folder` are filled in before `close`."""

    def __init__(self) -> None:
        self.contact: Contact | None = None
        self.folder: Path | None = None
        self.with_table = True
        self.delivered = False
        self.error: Exception | None = None

    def open(self, facts: RunFacts) -> None:
        """Nothing to do before the end."""

    def facts(self, update: RunFacts) -> None:
        """The report at the end tells them."""

    def event(self, event: SemanticEvent) -> None:
        """The history has them."""

    def close(self, diagnosis: Diagnosis) -> None:
        if self.contact is None or self.folder is None:
            return
        try:
            if self.with_table:
                send_table(self.contact.run, diagnosis)
            send_artifact(self.contact, diagnosis, self.folder)
            self.delivered = True
        except Exception as error:
            self.error = error
            log.debug("W&B run %s did not take table and artifact", self.contact.id, exc_info=error)


def send_table(run: Any, diagnosis: Diagnosis) -> None:
    """The hypotheses as one typed table in the summary, where a query over runs finds it; none without rows."""
    names, rows, kinds = content.table(diagnosis)
    if rows:
        run.summary[content.TABLE] = wandb.Table(columns=[*names], data=rows, dtype=kinds, optional=True)


def send_artifact(contact: Contact, diagnosis: Diagnosis, folder: Path) -> None:
    """The report's files as one artifact, with the columns as its metadata."""
    artifact = wandb.Artifact(
        content.artifact_name(contact.id), type=content.ARTIFACT_TYPE, metadata=content.columns(diagnosis)
    )
    for file in sorted(folder.iterdir()):
        if file.is_file():
            artifact.add_file(str(file), name=file.name)
    contact.run.log_artifact(artifact, aliases=["latest", str(diagnosis.verdict)])
