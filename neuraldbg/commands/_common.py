"""What commands share: how they refuse, how they read diagnoses, how they write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.diagnosis import Diagnosis

SOURCES = "Folders or files of diagnoses and journals, mlflow:EXPERIMENT, or wandb:ENTITY/PROJECT."
BAD_INPUT = 2  # the exit status of a command that was given something it cannot use

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(message: str) -> NoReturn:
    """Say what was wrong and what to type, without a traceback."""
    Console(stderr=True).print(Text(f"neuraldbg: {message}"), soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def said(error: Exception) -> str:
    """What an error says; a LookupError's own text would be its message in quotes."""
    return str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)


def write(path: Path, text: str, hint: str = "") -> None:
    """Write a file whose path the user gave."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}{hint}")


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Headings in bold, each with its text beside it."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in lines:
        table.add_row(Text(heading), Text(text))
    Console().print(table)


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
