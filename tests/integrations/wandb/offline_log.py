"""What an offline run wrote: its `.wandb` file, read with wandb's own protobufs.

The file is a log in LevelDB's format: a header, then blocks of 32 KiB that hold chunks of records. `finish()` returns
before the file is complete, so a reader waits for the record of the exit.
"""

from __future__ import annotations

import importlib
import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")  # its types are made when it is loaded

HEADER, BLOCK, CHUNK = 7, 32768, 7
FULL, LAST = 1, 4  # kinds of chunks that end a record


def chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each chunk; a cut one at the end is left out."""
    at = HEADER
    while at + CHUNK <= len(data):
        left = BLOCK - at % BLOCK
        if left < CHUNK:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0 or at + CHUNK + length > len(data):
            return
        yield kind, data[at + CHUNK : at + CHUNK + length]
        at += CHUNK + length


def records(path: Path) -> Iterator[Any]:
    gathered = b""
    for kind, content in chunks(path.read_bytes()):
        gathered += content
        if kind in (FULL, LAST):
            record = messages.Record()
            record.ParseFromString(gathered)
            gathered = b""
            yield record


@dataclass
class Log:
    """The content of a run as W&B would show it after a sync."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    notes: str = ""
    sweep: str = ""
    files: set[str] = field(default_factory=set)
    artifacts: list[tuple[str, str]] = field(default_factory=list)
    alerts: list[tuple[str, str, str]] = field(default_factory=list)
    exit_code: int | None = None

    def users_rows(self) -> list[dict[str, Any]]:
        """The rows as the user logged them: without our keys, and without those of the clock."""
        ours = ("neuraldbg/", "_timestamp", "_runtime", "_wandb")
        kept = [{k: v for k, v in row.items() if not k.startswith(ours)} for row in self.rows]
        return [row for row in kept if set(row) > {"_step"}]

    def series(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows if key in row]


def _put(into: dict[str, Any], items: Any) -> None:
    """Values by key; a key of several parts leads into dictionaries."""
    for item in items:
        *above, last = item.nested_key or [item.key]
        place = into
        for part in above:
            place = place.setdefault(part, {})
        place[last] = json.loads(item.value_json)


def read(path: Path) -> Log:
    log = Log()
    for record in records(path):
        match record.WhichOneof("record_type"):
            case "history":
                log.rows.append({"_step": record.history.step.num})
                _put(log.rows[-1], record.history.item)
            case "summary":
                _put(log.summary, record.summary.update)
            case "config":
                _put(log.config, record.config.update)
            case "run":
                log.tags, log.notes, log.sweep = tuple(record.run.tags), record.run.notes, record.run.sweep_id
                _put(log.config, record.run.config.update)
            case "metric":
                log.axes[record.metric.glob_name or record.metric.name] = record.metric.step_metric
            case "files":
                log.files |= {file.path for file in record.files.files}
            case "artifact":
                log.artifacts.append((record.artifact.name, record.artifact.type))
            case "alert":
                log.alerts.append((record.alert.title, record.alert.text, record.alert.level))
            case "exit":
                log.exit_code = record.exit.exit_code
            case _:
                continue
    return log


def settled(path: Path, timeout: float = 20.0) -> Log:
    """The log once the run's exit is in it."""
    deadline = time.monotonic() + timeout
    while (log := read(path)).exit_code is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has no exit record after {timeout:g} s")
        time.sleep(0.02)
    return log
