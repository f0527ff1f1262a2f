"""`MlflowSink`: a session's findings into one MLflow run, on disk before they go over the network."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

import mlflow

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.journal import Journal
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.sinks import Lane, Undelivered

from . import _mlflow_content as content
from . import _spool as spool
from ._content import because, is_empty
from ._following import refuse_seconds
from ._mlflow_network import Binding, Choice, Network, Target
from ._mlflow_spool import JOURNAL, write_target

CREATE_RUN = ("if_none", "leave_open", "never")
MARGIN = 0.5  # seconds of close_timeout kept for what is not network


class MlflowSink:
    """Writes into the active run, or into `run_id`; all writing is done by worker threads, with a client.

    tracking_uri: of the server that has `run_id`; by default the one that MLflow is set to.
    create_run: "if_none" makes a run where none was active by the end, and ends it; "leave_open" does not end
    it; "never" makes none. exclusive: never write into a run that the user made. The other flags are those of
    `autolog`. The status of a run that it did not make is never touched.
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        tracking_uri: str | None = None,
        create_run: str = "if_none",
        exclusive: bool = False,
        silent: bool = False,
        log_tags: bool = True,
        log_metrics: bool = True,
        log_artifacts: bool = True,
        log_description: bool = True,
        extra_tags: Mapping[str, str] | None = None,
        flush_interval: float = 5.0,
        close_timeout: float = 10.0,
        spool_dir: Path | str | None = None,
    ) -> None:
        check(create_run=create_run, flush_interval=flush_interval, close_timeout=close_timeout, extra_tags=extra_tags)
        self.close_timeout = close_timeout
        self.silent = silent
        self._create_run = create_run
        self._exclusive = exclusive
        self._choice = Choice(log_tags, log_metrics, log_artifacts, log_description, dict(extra_tags or {}))
        given = run_id or os.environ.get("NEURALDBG_MLFLOW_RUN_ID") or None
        self._binding = Binding(Target(tracking_uri or mlflow.get_tracking_uri(), given))
        self._spool_dir = spool_dir
        self._facts = RunFacts()
        self._folder: Path | None = None
        self._journal: Journal | None = None
        self._network = Network(self._binding, self._choice, flush_interval)
        self._lane: Lane | None = None

    def bind(self) -> bool:
        """Take the training thread's active run, once there is one."""
        if self._binding.target.run_id is None and not self._exclusive:
            run = mlflow.active_run()
            if run is not None:
                self._binding.target = Target(mlflow.get_tracking_uri(), run.info.run_id, run.info.experiment_id)
        return self._exclusive or self._binding.target.run_id is not None

    @property
    def run_id(self) -> str | None:
        """The run that the findings go to, once it is known."""
        return self._binding.target.run_id

    def open(self, facts: RunFacts) -> None:
        """A session started; nothing is written before it sees a step, for not every session will."""
        self._lane = Lane(self._network)
        weakref.finalize(self, self._lane.stop).atexit = False
        self._facts = facts

    def _begin(self) -> None:
        if self._journal is not None or self._lane is None:
            return
        self._folder = spool.make(self._spool_dir, "mlflow")
        self._journal = Journal(self._folder / JOURNAL)
        self._journal.open(self._facts)
        write_target(self._folder, self._binding.target, self._choice)
        self._lane.put("open", self._facts)

    def facts(self, update: RunFacts) -> None:
        self._facts = update
        if self._journal is not None:
            self._journal.facts(update)

    def event(self, event: SemanticEvent) -> None:
        self._begin()
        if self._journal is not None and self._lane is not None:
            self._journal.event(event)
            self._lane.put("event", event)

    def points(self, step: int, values: Mapping[str, float]) -> None:
        self._begin()
        if self._journal is not None:
            self._journal.points(step, values)

    def held(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        self._begin()
        if self._journal is not None:
            self._journal.held(place, record, facts)

    def close(self, diagnosis: Diagnosis) -> None:
        start = time.monotonic()
        unwanted = self.run_id is None and self._create_run == "never"
        if self._lane is None or is_empty(diagnosis) or unwanted:
            self._discard()
            return
        self._begin()
        assert self._folder is not None and self._journal is not None
        self._journal.close(diagnosis)
        if self.run_id is None:
            self._binding.target = _new_run(end=self._create_run != "leave_open")
        self._network.files = content.files(diagnosis) if self._choice.artifacts else {}
        spool.write_files(self._folder, self._network.files)
        write_target(self._folder, self._binding.target, self._choice)
        self._lane.finish(diagnosis)
        self._lane.ended(max(0.1, self.close_timeout - MARGIN - (time.monotonic() - start)))
        if self._network.delivered is None:
            write_target(self._folder, self._binding.target, self._choice)  # a run may have been made
            raise Undelivered(self._told())
        spool.remove(self._folder)

    def _discard(self) -> None:
        if self._lane is not None:
            self._lane.stop()
        if self._folder is not None:
            spool.remove(self._folder)

    @property
    def advice(self) -> str:
        """Where everything is, and what to type once the server is back."""
        if self._folder is None:
            return ""
        return (
            f"it is kept in {self._folder} ({JOURNAL} and the report); once the server is back, type: "
            f'python -c "from neuraldbg.integrations.mlflow import replay; replay({str(self._folder)!r})"'
        )

    def _told(self) -> str:
        uri = self._binding.target.tracking_uri
        return f"MLflow at {uri} did not take the diagnosis{because(self._network.error)}"


def _new_run(*, end: bool) -> Target:
    """A run where `mlflow.start_run()` would make one; `mlflow.set_experiment` leaves its id in the environment."""
    return Target(
        mlflow.get_tracking_uri(),
        experiment_id=os.environ.get("MLFLOW_EXPERIMENT_ID") or None,
        experiment_name=os.environ.get("MLFLOW_EXPERIMENT_NAME") or None,
        end_made=end,
    )


def check(
    *, create_run: str, flush_interval: float, close_timeout: float, extra_tags: Mapping[str, str] | None
) -> None:
    """Refuse values that would only fail later, on a worker, out of the user's sight."""
    if create_run not in CREATE_RUN:
        raise ValueError(f"create_run={create_run!r} is unknown; use one of: {', '.join(CREATE_RUN)}")
    refuse_seconds(flush_interval=flush_interval, close_timeout=close_timeout)
    if extra_tags is not None and not isinstance(extra_tags, Mapping):
        raise ValueError(f"extra_tags={extra_tags!r} is no mapping; give {{'team': 'vision'}}")
