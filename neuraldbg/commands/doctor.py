"""`neuraldbg doctor`: what is installed, which settings are in force, and what would be seen of a model."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.codec import encode
from neuraldbg.commands._common import Json, fail
from neuraldbg.record import RunFacts

PACKAGES = ("torch", "numpy", "networkx", "pydantic-settings", "jinja2", "typer", "rich")
TRACKERS = ("mlflow", "wandb")
FRAMEWORKS = ("lightning", "transformers", "accelerate", "optuna", "skorch", "pytorch-ignite", "hydra-core")
MOST_ROWS = 80  # of modules, in the table

broken: list[str] = []  # entry points that did not load, in words


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="package.module:name or file.py:name, a model or what makes it."),
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--input", metavar="SHAPE", help="A batch to run through it: 32,10 or 8,16:int.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what is installed, which settings are in force, what does not load; of a model, what would be seen."""
    if model is not None:
        _model(model, shape, as_json)
        return
    if shape is not None:
        fail("--input needs a model; type: neuraldbg doctor MODEL --input SHAPE")
    from neuraldbg import __version__
    from neuraldbg.settings import make

    found: dict[str, Any] = {
        "neuraldbg": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    found |= {name: installed(name) for name in (*PACKAGES, *TRACKERS, *FRAMEWORKS, "scikit-learn")}
    problems = [f"{name} is missing: pip install {name}" for name in PACKAGES if found[name] is None]
    settings: dict[str, Any] = {}
    try:
        settings = make().model_dump(mode="json")
    except ValueError as error:
        problems.append(f"the settings are not valid: {error}")
    problems += broken
    if as_json:
        typer.echo(json.dumps({"versions": found, "settings": settings, "problems": problems}, indent=1))
    else:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for name, value in found.items():
            table.add_row(Text(name, style="bold"), Text(str(value or "not installed (optional)")))
        for name, value in settings.items():
            table.add_row(Text(f"settings: {name}"), Text(str(value)))
        Console().print(table)
        for problem in problems:
            Console().print(Text(problem, style="red"))
    if problems:
        raise typer.Exit(1)


def _model(target: str, shape: str | None, as_json: bool) -> None:
    """What would be seen of a model."""
    from neuraldbg.watch import preview

    try:
        loaded = preview.load(target)
        facts = preview.preview(loaded, None if shape is None else preview.batch(shape))
    except (ValueError, TypeError) as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps(encode(facts), indent=1, allow_nan=False))
        return
    console = Console()
    console.print(_modules(facts, ran=shape is not None))
    if len(facts.modules) > MOST_ROWS:
        console.print(Text(f"and {len(facts.modules) - MOST_ROWS} more modules, in --json"))
    console.print(Text(_counts(facts, ran=shape is not None), style="bold"))
    for note in facts.coverage.notes:
        console.print(Text(f"not looked at: {note}"))


def _modules(facts: RunFacts, ran: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("module", "kind", "parameters", "activation", *(("ran",) if ran else ())):
        table.add_column(column, justify="right" if column in ("parameters", "ran") else "left", overflow="fold")
    for m in facts.modules[:MOST_ROWS]:
        cells = [
            m.name or "(the model)",
            m.kind,
            f"{m.trainable} of {m.parameters}" if m.parameters else "",
            m.activation,
        ]
        table.add_row(*map(Text, [*cells, *(["never" if m.order is None else str(m.order)] if ran else [])]))
    return table


def _counts(facts: RunFacts, ran: bool) -> str:
    trainable = sum(p.trainable for p in facts.parameters)
    text = f"{len(facts.modules)} modules, {len(facts.parameters)} parameters ({trainable} trainable) would be watched"
    if ran:
        text += f"; {facts.coverage.modules_seen} modules ran, {facts.coverage.mode}"
        text += f"; {', '.join(sorted(facts.structure))}" if facts.structure else ""
    return text
