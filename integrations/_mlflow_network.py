"""The part of the MLflow sink that talks to the tracking server; it runs on a thread that may hang for minutes.

MLflow retries a dead server for four minutes a call by default, and those settings govern the user's own logging too,
so they are left alone: nobody waits for this thread longer than the sink allows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.record import RunFacts

from . import _mlflow_content as content
from ._content import slug
from ._mlflow_content import Point

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger("neuraldbg")

BREAK_AFTER = 3  # failures in a row
BREAK_SECONDS = 60.0
WARM_UP_AFTER = 3.0  # seconds in which a run may still become active
MOST_METRICS = 900  # MLflow takes 1000 items in one batch, tags included
NOTE = "mlflow.note.content"
TABLES = "mlflow.loggedArtifacts"


@dataclass(frozen=True)
class Target:
    """A run of a tracking server. Where `run_id` is None one is made there, and ended by us if `end_made`."""

    tracking_uri: str
    run_id: str | None = None
    experiment_id: str | None = None
    experiment_name: str | None = None
    made: bool = False
    end_made: bool = True


class Binding:
    """The target as it is known now; it is found on the training thread and read by the workers."""

    def __init__(self, target: Target) -> None:
        self.target = target


@dataclass(frozen=True)
class Choice:
    """What the user wants logged."""

    tags: bool = True
    metrics: bool = True
    artifacts: bool = True
    description: bool = True
    extra_tags: Mapping[str, str] = field(default_factory=dict)


def client_of(target: Target) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=target.tracking_uri)


def send(client: MlflowClient, run_id: str, tags: Mapping[str, str], points: list[Point]) -> None:
    """One request with all tags and metrics."""
    from mlflow.entities import Metric, RunTag

    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(p.key, float(p.value), now, p.step) for p in points],
        tags=[RunTag(key, value) for key, value in tags.items()],
        synchronous=True,
    )


def with_run(target: Target) -> Target:
    """The target, with a run made in its experiment if it has none."""
    if target.run_id is not None:
        return target
    client = client_of(target)
    run = client.create_run(_experiment(client, target), tags={"neuraldbg.managed": "true"})
    return replace(target, run_id=str(run.info.run_id), made=True)


def _experiment(client: MlflowClient, target: Target) -> str:
    if target.experiment_id is not None or target.experiment_name is None:
        return target.experiment_id or "0"
    found = client.get_experiment_by_name(target.experiment_name)
    return str(found.experiment_id if found else client.create_experiment(target.experiment_name))


def push(
    target: Target, diagnosis: Diagnosis, files: Mapping[str, str], choice: Choice, earlier: Sequence[Point] = ()
) -> str:
    """Write the whole Diagnosis into the target's run; its id. Pushing twice is as good as once."""
    if target.run_id is None:
        raise ValueError("the target has no run")
    client, run_id = client_of(target), target.run_id
    run = client.get_run(run_id)
    tags = content.tags(diagnosis, choice.extra_tags) if choice.tags else {}
    if choice.artifacts:
        tags[TABLES] = content.registered_tables(run.data.tags.get(TABLES, ""))
    points = [*earlier, *content.metrics(diagnosis)][-MOST_METRICS:] if choice.metrics else []
    if tags or points:
        send(client, run_id, tags, points)
    if choice.tags:  # what an earlier session in this run left
        for key in run.data.tags:
            if key.startswith(("neuraldbg.event.", "neuraldbg.exception")) and key not in tags:
                client.delete_tag(run_id, key)
    if choice.artifacts:
        for path, text in files.items():
            client.log_text(run_id, text, path)
    if choice.description:
        block = content.description(diagnosis, run.info.experiment_id, run_id, linked=choice.artifacts)
        client.set_tag(run_id, NOTE, content.merged_note(run.data.tags.get(NOTE, ""), block))
    if target.made and target.end_made:
        client.set_terminated(run_id, "FINISHED")
    return run_id


def is_refusal(error: Exception) -> bool:
    """Whether the server answered that the request itself is wrong, so that sending it again is pointless."""
    status = getattr(error, "get_http_status_code", None)
    return status is not None and 400 <= int(status()) < 500 and int(status()) not in (408, 429)


class Network:
    """A sink that keeps the run's live tags fresh and pushes the final Diagnosis.

    `files` are filled in by the owner before `close`.
    """

    def __init__(self, binding: Binding, choice: Choice, flush_interval: float) -> None:
        self.files: Mapping[str, str] = {}
        self.delivered: str | None = None
        self.error: Exception | None = None
        self._binding = binding
        self._opened = time.monotonic()
        self._warm = False
        self._choice = choice
        self._interval = flush_interval
        self._tags: dict[str, str] = {}
        self._points: list[Point] = []
        self._first: dict[str, SemanticEvent] = {}
        self._count: dict[str, int] = {}
        self._total = 0
        self._due = 0.0
        self._failures = 0
        self._refused = False

    def open(self, facts: RunFacts) -> None:
        self._tags = content.opening_tags(self._choice.extra_tags)
        self.idle()

    def facts(self, update: RunFacts) -> None:
        """The report at the end tells them."""

    def event(self, event: SemanticEvent) -> None:
        if event.is_recovery:
            return
        kind = slug(event.symptom or event.event_type)
        first = self._first.setdefault(kind, event)
        self._count[kind] = self._count.get(kind, 0) + event.collapsed_count
        self._total += event.collapsed_count
        if list(self._first).index(kind) < content.KINDS:
            self._tags[f"neuraldbg.event.{kind}"] = content.event_tag(first, self._count[kind])
        point = Point("neuraldbg/events", self._total, event.step)
        if self._points and self._points[-1].step == event.step:
            self._points[-1] = point
        elif len(self._points) < MOST_METRICS // 2:
            self._points.append(point)
        self.idle()

    def idle(self) -> None:
        """Send what has gathered, once an interval; while the server is out, once a minute."""
        target = self._binding.target
        if target.run_id is None:
            self._warm_up(target)
            return
        if time.monotonic() < self._due or self._refused:
            return
        tags = self._tags if self._choice.tags else {}
        points = self._points if self._choice.metrics else []
        if not tags and not points:
            return
        try:
            send(client_of(target), target.run_id, tags, points)
        except Exception as error:
            self._failed(error)
        else:
            self._tags, self._points, self._failures = {}, [], 0
            self._due = time.monotonic() + self._interval

    def _warm_up(self, target: Target) -> None:
        """Let MLflow make a new database, which takes seconds, while the training runs and not when it closes."""
        if not self._warm and time.monotonic() - self._opened > WARM_UP_AFTER:
            self._warm = True
            with suppress(Exception):  # close will tell
                client_of(target).search_experiments(max_results=1)

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._failures += 1
        self._refused = is_refusal(error)
        self._due = time.monotonic() + (BREAK_SECONDS if self._failures >= BREAK_AFTER else self._interval)
        log.debug("MLflow did not take an update", exc_info=error)

    @property
    def _broken(self) -> bool:
        return self._failures >= BREAK_AFTER and time.monotonic() < self._due

    def close(self, diagnosis: Diagnosis) -> None:
        if self._broken:
            return  # it did not answer a moment ago; `error` says why
        try:
            self._binding.target = with_run(self._binding.target)
            self.delivered = push(self._binding.target, diagnosis, self.files, self._choice, self._points)
        except Exception as error:
            self.error = error
