"""`neuraldbg diff`: where two trainings part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuraldbg.commands._common import Json, fail, print_lines
from neuraldbg.diagnosis import Diagnosis

_SIDE = typer.Argument(help="A diagnosis.json, a journal, or a folder of one run.", metavar="FILE|FOLDER")


def diff(
    a: Annotated[Path, _SIDE],
    b: Annotated[Path, _SIDE],
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, help="Relative distance up to which numbers are the same.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Say where two trainings first differ: in which step and layer."""
    from neuraldbg.diff import diverge
    from neuraldbg.report.diff import lines, to_json

    one, other = _load(a), _load(b)
    found = diverge(one, other, tolerance)
    if as_json:
        typer.echo(to_json(found, one, other, (str(a), str(b))))
        return
    print_lines(lines(found, one, other, (str(a), str(b))))


def _load(path: Path) -> Diagnosis:
    from neuraldbg.diff import load
    from neuraldbg.runfolder import sessions

    if not path.exists():
        fail(f"there is no file or folder {path}")
    files = sessions(path) if path.is_dir() else [path]
    if len(files) != 1:
        hint = f"; name one of: {', '.join(str(f) for f in files[:10])}" if files else ""
        fail(f"{path} holds {len(files)} sessions, and one is compared with one{hint}")
    try:
        return load(files[0])
    except (OSError, ValueError) as error:
        fail(f"{files[0]}: {error}")
