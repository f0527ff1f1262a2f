"""`neuraldbg push`: what a tracker did not get in time goes there now.

Each tracker's part is a callable named by an entry point of the group `neuraldbg.pushers`: it is given a folder, pushes
all that it finds of its own below, removes it from there, and gives back the ids of the runs. It raises
FileNotFoundError where the folder holds nothing of its own.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from neuraldbg.commands._common import Json, fail

SPOOL = Path(".neuraldbg")


def push(
    folder: Annotated[
        Path, typer.Argument(help="The folder that the warning named, or one that holds several.")
    ] = SPOOL,
    as_json: Json = False,
) -> None:
    """Push diagnoses that a tracker did not get in time, and remove them here."""
    if not folder.is_dir():
        fail(f"there is no folder {folder}; give the one that NeuralDBG's warning named")
    pushed: dict[str, list[str]] = {}
    failed: list[str] = []
    points = sorted(entry_points(group="neuraldbg.pushers"), key=lambda point: point.name)
    for point in points:
        try:
            pushed[point.name] = list(point.load()(folder))
        except FileNotFoundError:
            continue
        except Exception as error:  # of a tracker's client, which may raise anything; what is left stays in the folder
            failed.append(f"{point.name}: {str(error).partition(chr(10))[0] or repr(error)}; it stays in {folder}")
    if not pushed and not failed:
        known = ", ".join(point.name for point in points) or "none is installed"
        fail(f"{folder} holds nothing that was kept for a tracker ({known})")
    if as_json:
        typer.echo(json.dumps({"pushed": pushed, "failed": failed}, indent=1))
    else:
        for name, runs in pushed.items():
            typer.echo(f"{name}: {len(runs)} pushed: {', '.join(runs)}")
    if failed:
        if not as_json:
            typer.echo("\n".join(f"neuraldbg: {line}" for line in failed), err=True)
        raise typer.Exit(1)
