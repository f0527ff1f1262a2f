"""The folder in which a session's findings are safe until a tracker has them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

HIDDEN = ".neuraldbg"


def make(spool_dir: Path | str | None, tracker: str) -> Path:
    """A fresh folder for one session under `spool_dir`, or `.neuraldbg/<tracker>` here, else a temporary one."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    roots = [Path(spool_dir)] if spool_dir is not None else [Path.cwd() / HIDDEN / tracker]
    for root in [*roots, Path(tempfile.gettempdir()) / "neuraldbg"]:
        with suppress(OSError):
            folder = root / name
            folder.mkdir(parents=True)
            return folder.absolute()
    return Path(tempfile.mkdtemp(prefix="neuraldbg-"))


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Path below the folder -> text."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def remove(folder: Path) -> None:
    """Remove a session's folder and the folders above it that we made, once they are empty."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in list(folder.parents)[:2]:
        if parent.name not in (HIDDEN, "neuraldbg") and parent.parent.name != HIDDEN:
            return
        with suppress(OSError):
            parent.rmdir()


def remove_empty(folder: Path) -> None:
    """Remove a folder of ours, and those above it that we made, unless another session left something there."""
    with suppress(OSError):
        folder.rmdir()
        remove(folder)
