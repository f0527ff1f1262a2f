"""`neuraldbg merge`: the ranks of one training, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuraldbg.commands._common import Json, fail, print_lines


def merge(
    folder: Annotated[
        Path, typer.Argument(help="A folder with a journal or diagnosis of each rank.", metavar="FOLDER")
    ],
    as_json: Json = False,
) -> None:
    """Say which rank of a distributed training failed first, and whether it was its own doing."""
    from neuraldbg.ranks import load
    from neuraldbg.report.ranks import lines, to_json
    from neuraldbg.runfolder import sessions

    if not folder.is_dir():
        fail(f"there is no folder {folder}; NEURALDBG_DIR or `neuraldbg run --dir` makes one with a file of each rank")
    try:
        merged = load(sessions(folder))
    except (OSError, ValueError) as error:
        fail(f"{folder}: {error}")
    if as_json:
        typer.echo(to_json(merged))
        return
    print_lines(lines(merged))
