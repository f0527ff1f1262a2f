"""The folder in which a session's findings are safe until MLflow has them, and the way from there into MLflow."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

from neuraldbg import journal
from neuraldbg.diagnosis import Diagnosis

from . import _mlflow_content as content
from ._mlflow_network import Choice, Target, push, with_run
from ._spool import remove

log = logging.getLogger("neuraldbg")

JOURNAL = "neuraldbg.mlflow.jsonl"
_TARGET = "target.json"


def write_target(folder: Path, target: Target, choice: Choice) -> None:
    plain = {"target": asdict(target), "choice": {**asdict(choice), "extra_tags": dict(choice.extra_tags)}}
    (folder / _TARGET).write_text(json.dumps(plain), encoding="utf-8")


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
