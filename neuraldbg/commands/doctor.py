"""`neuraldbg doctor`: what is installed, and which settings are in force."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.commands._common import Json

PACKAGES = ("torch", "numpy", "networkx", "pydantic-settings", "jinja2", "typer", "rich")
EXTRAS = ("mlflow", "wandb", "lightning", "transformers", "optuna", "scikit-learn")

broken: list[str] = []  # entry points that did not load, in words


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def doctor(as_json: Json = False) -> None:
    """Say what is installed, which settings are in force, and what does not load."""
    from neuraldbg import __version__
    from neuraldbg.settings import make

    found: dict[str, Any] = {
        "neuraldbg": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    found |= {name: installed(name) for name in (*PACKAGES, *EXTRAS)}
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
