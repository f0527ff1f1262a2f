"""`neuraldbg summary`: finished trainings as one page to pass on."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuraldbg.commands._common import SOURCES, Json, fail, load_all, said, write

if TYPE_CHECKING:
    from neuraldbg.report.summary import Told

OUTPUT = Path("SESSION_SUMMARY.md")


def summary(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help=SOURCES),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes; - prints it.")
    ] = OUTPUT,
    title: Annotated[str, typer.Option("--title", help="The page's heading, before the date.")] = "",
    as_json: Json = False,
) -> None:
    """Write what became of finished trainings, a section each: verdict, causes, evidence, where to look."""
    from neuraldbg.report.summary import counted, page

    to_stdout = str(output) == "-"
    folder = Path() if to_stdout else output.parent
    trainings = [told for source in sources for told in _told(source, folder)]
    if not trainings:
        fail(f"there is no training in {', '.join(sources)}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(told.row) for told in trainings], indent=1))
        return
    text = page(trainings, datetime.now(timezone.utc).date(), title)
    if to_stdout:
        typer.echo(text, nl=False)
        return
    write(output, text, "; choose another with --output")
    typer.echo(f"wrote {output}: {counted(trainings)}")


def _told(source: str, folder: Path) -> Iterator[Told]:
    """The trainings of a file, a folder or a tracker."""
    from neuraldbg.report.summary import Told
    from neuraldbg.sweep.rows import rows_of

    if Path(source).exists():
        yield from _sessions(Path(source), folder)
        return
    try:
        for row in rows_of(source):
            link = row.where.startswith(("https://", "http://"))
            yield Told(row, links=(("Run", row.where),)) if link else Told(row, known_as=row.where)
    except (LookupError, OSError, ValueError) as error:
        fail(said(error))


def _sessions(top: Path, folder: Path) -> Iterator[Told]:
    from neuraldbg.report.summary import Told
    from neuraldbg.sweep.rows import row

    for file, diagnosis in load_all(top):
        name = str(file.relative_to(top)) if file != top else file.name
        yield Told(row(diagnosis, name, {}, str(file)), diagnosis, (_link(file, folder),))


def _link(session: Path, folder: Path) -> tuple[str, str]:
    """The page that `neuraldbg run` left beside a session, else the session's own file; seen from a folder."""
    from neuraldbg.runfolder import DIAGNOSIS, JOURNAL, PAGE

    stem = session.stem.removeprefix(JOURNAL).removeprefix(DIAGNOSIS)
    page = session.with_name(f"{PAGE}{stem}.html")
    label, file = ("Report", page) if page.is_file() else ("Diagnosis", session)
    try:
        return label, Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # on another drive
        return label, file.as_posix()
