"""The folder in which a session's findings are safe until MLflow has them, and the way from there into MLflow."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from neuraldbg import journal
from neuraldbg.diagnosis import Diagnosis

from . import _mlflow_content as content
from ._mlflow_network import Choice, Target, push, with_run

log = logging.getLogger("neuraldbg")

JOURNAL = "neuraldbg.mlflow.jsonl"
_TARGET = "target.json"


def make(spool_dir: Path | str | None) -> Path:
    """A fresh folder for one session under `spool_dir`, or under `.neuraldbg/mlflow` here, else a temporary one."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    roots = [Path(spool_dir)] if spool_dir is not None else [Path.cwd() / ".neuraldbg" / "mlflow"]
    for root in [*roots, Path(tempfile.gettempdir()) / "neuraldbg"]:
        with suppress(OSError):
            folder = root / name
            folder.mkdir(parents=True)
            return folder.absolute()
    return Path(tempfile.mkdtemp(prefix="neuraldbg-"))


def write_target(folder: Path, target: Target, choice: Choice) -> None:
    plain = {"target": asdict(target), "choice": {**asdict(choice), "extra_tags": dict(choice.extra_tags)}}
    (folder / _TARGET).write_text(json.dumps(plain), encoding="utf-8")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def remove(folder: Path) -> None:
    """Remove a session's folder and the folders above it that we made, once they are empty."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in list(folder.parents)[:2]:
        if parent.name not in ("mlflow", ".neuraldbg", "neuraldbg"):
            return
        with suppress(OSError):
            parent.rmdir()


def replay(spool_dir: Path | str, *, tracking_uri: str | None = None, run_id: str | None = None) -> list[str]:
    """Push what MLflow did not get in time, and remove it from the spool; the ids of the runs.

    spool_dir: the folder that the warning named, or one that holds several. tracking_uri, run_id: another
    server or run than the session's own. A session that was killed is diagnosed from its journal.
    """
    top = Path(spool_dir)
    folders = sorted(path.parent for path in top.rglob(JOURNAL)) if top.is_dir() else []
    if not folders:
        raise FileNotFoundError(f"{top} holds no {JOURNAL}: give the folder that NeuralDBG's warning named")
    return [_replay(folder, tracking_uri, run_id) for folder in folders]


def _replay(folder: Path, tracking_uri: str | None, run_id: str | None) -> str:
    target, choice = _read_target(folder)
    if tracking_uri is not None:
        target = replace(target, tracking_uri=tracking_uri)
    if run_id is not None:
        target = replace(target, run_id=run_id)
    diagnosis: Diagnosis = journal.rebuild(folder / JOURNAL)
    target = with_run(target)
    write_target(folder, target, choice)  # should the push fail, the next one goes into the same run
    pushed = push(target, diagnosis, content.files(diagnosis) if choice.artifacts else {}, choice)
    remove(folder)
    return pushed


def _read_target(folder: Path) -> tuple[Target, Choice]:
    try:
        plain = json.loads((folder / _TARGET).read_text(encoding="utf-8"))
        return Target(**plain["target"]), Choice(**plain["choice"])
    except (OSError, ValueError, TypeError, KeyError):
        import mlflow

        log.warning("%s does not say where it belongs; a new run at %s", folder, mlflow.get_tracking_uri())
        return Target(mlflow.get_tracking_uri()), Choice()
