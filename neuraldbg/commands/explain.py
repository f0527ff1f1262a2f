"""`neuraldbg explain`: the pages of the causes."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.commands._common import Json, fail


def pages() -> dict[str, str]:
    """Cause -> the name of the module whose docstring is its page; rules of installed packages too."""
    import neuraldbg.rules

    own = {
        m.name: f"neuraldbg.rules.{m.name}" for m in pkgutil.iter_modules(neuraldbg.rules.__path__) if m.name[0] != "_"
    }
    others = {point.name: point.module for point in entry_points(group="neuraldbg.rules")}
    return dict(sorted({**others, **own}.items()))


def page_of(cause: str, known: dict[str, str]) -> str:
    """A cause's page."""
    return inspect.getdoc(importlib.import_module(known[cause])) or "This cause has no page."


def slug(typed: str) -> str:
    """A cause's name as people may type it."""
    return typed.strip().lower().replace("-", "_").replace(" ", "_")


def unknown(cause: str, known: Iterable[str]) -> str:
    """What to say of a cause that is none, with those that are spelt like it."""
    close = difflib.get_close_matches(slug(cause), known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    return f"unknown cause {cause!r}; {hint}`neuraldbg explain` lists all causes"


def completed(begun: str) -> list[str]:
    """The causes that begin so, for the shell's completion."""
    return [name for name in pages() if name.startswith(begun)]


def explain(
    cause: Annotated[
        str | None, typer.Argument(help="A cause; without one all causes are listed.", autocompletion=completed)
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a cause: what it is, how it looks, what speaks against it, what to do."""
    from neuraldbg.report.sentences import cause_words

    known = pages()
    if cause is None:
        words = {name: cause_words(name) for name in known}
        if as_json:
            typer.echo(json.dumps(words, indent=1))
            return
        table = Table("cause", "in words", box=None, padding=(0, 2, 0, 0))
        for name, text in words.items():
            table.add_row(Text(name, style="bold"), Text(text))
        Console().print(table)
        return
    name = slug(cause)
    if name not in known:
        fail(unknown(cause, known))
    page = page_of(name, known)
    typer.echo(json.dumps({"cause": name, "page": page}, indent=1) if as_json else page)
