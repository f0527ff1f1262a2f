"""`neuraldbg demo`: `neuraldbg run` on a training that breaks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where journal and report go; a temporary folder by default."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the diagnosis as one line of JSON, on stderr.")
    ] = False,
) -> None:
    """Train a small model that breaks, and say why: ten seconds, nothing to download."""
    from neuraldbg.commands.run import run

    where = folder or Path(tempfile.mkdtemp(prefix="neuraldbg-demo-"))
    run(["neuraldbg.watch.demo"], module=True, folder=where, fail_on=None, as_json=as_json)
