"""`neuraldbg wandb ...`: what this spoke adds to the command line. wandb itself is loaded when a command runs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from neuraldbg.commands._common import Json, fail

app = typer.Typer(no_args_is_help=True, help="Weights & Biases: a saved view of a project by failure cause.")


@app.callback()
def _group() -> None:
    """Weights & Biases: a saved view of a project by failure cause."""


@app.command()
def workspace(
    project: Annotated[str, typer.Argument(metavar="ENTITY/PROJECT", help="Where the runs are.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="A config key to compare (default: lr); repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Save a view that groups the project's runs by failure cause, and print its address."""
    entity, slash, name = project.strip("/").partition("/")
    if not (entity and slash and name) or "/" in name:
        fail(f"{project!r} is no ENTITY/PROJECT; give for example: neuraldbg wandb workspace my-team/my-project")
    from ._wandb_workspace import save

    try:
        url = save(entity, name, parameter or ["lr"])
    except Exception as error:  # no package, no login, no such project: the reason is all that helps
        fail(f"the view was not saved: {error}")
    typer.echo(json.dumps({"url": url}) if as_json else url)
