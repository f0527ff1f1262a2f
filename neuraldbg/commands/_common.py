"""What commands share: how they refuse, how they read diagnoses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from neuraldbg.diagnosis import Diagnosis

BAD_INPUT = 2  # the exit status of a command that was given something it cannot use

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(message: str) -> NoReturn:
    """Say what was wrong and what to type, without a traceback."""
    Console(stderr=True).print(Text(f"neuraldbg: {message}"), soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def load(path: Path) -> Diagnosis:
    """The Diagnosis of a diagnosis.json, or rebuilt from a journal."""
    from neuraldbg.runfolder import read

    if not path.is_file():
        fail(f"there is no file {path}")
    try:
        return read(path)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


def load_all(path: Path) -> list[tuple[Path, Diagnosis]]:
    """The Diagnosis of a file, or of each session in a folder, with the file that it was read from."""
    from neuraldbg.runfolder import sessions

    if not path.is_dir():
        return [(path, load(path))]
    files = sessions(path)
    if not files:
        fail(f"there is no diagnosis.json and no journal (.jsonl) in {path}")
    return [(file, load(file)) for file in files]
