"""`neuraldbg merge`: the ranks of one training, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.commands._common import Json, fail


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
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in lines(merged):
        table.add_row(Text(heading), Text(text))
    Console().print(table)
