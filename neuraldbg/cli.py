"""The command line: `neuraldbg show`, `explain`, `doctor`, and what installed packages add to it."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import pkgutil
import platform
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuraldbg.diagnosis import Diagnosis

PACKAGES = ("torch", "numpy", "networkx", "pydantic-settings", "jinja2", "typer", "rich")
EXTRAS = ("mlflow", "wandb", "lightning", "transformers", "optuna", "scikit-learn")
BAD_INPUT = 2  # the exit status of a command that was given something it cannot use

_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(message: str) -> NoReturn:
    """Say what was wrong and what to type, without a traceback."""
    Console(stderr=True).print(Text(f"neuraldbg: {message}"), soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def load(path: Path) -> Diagnosis:
    """The Diagnosis of a diagnosis.json, or rebuilt from a journal."""
    from neuraldbg.report.json import from_json

    if not path.is_file():
        fail(f"there is no file {path}")
    try:
        if path.suffix == ".jsonl":
            from neuraldbg.journal import rebuild

            return rebuild(path)
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


def show(
    file: Annotated[Path, typer.Argument(help="A diagnosis.json or a journal (.jsonl).")],
    as_json: _JSON = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the causal graph in Mermaid's language.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write the HTML page to OUT.")] = None,
) -> None:
    """Show a saved diagnosis."""
    if as_json + markdown + mermaid + (html is not None) > 1:
        fail("choose one of --json, --markdown, --mermaid and --html")
    diagnosis = load(file)
    if as_json:
        from neuraldbg.report.json import to_json

        typer.echo(to_json(diagnosis))
    elif markdown:
        from neuraldbg.report.markdown import markdown as as_markdown

        typer.echo(as_markdown(diagnosis), nl=False)
    elif mermaid:
        from neuraldbg.report.mermaid import mermaid as as_mermaid

        typer.echo(as_mermaid(diagnosis.graph), nl=False)
    elif html is not None:
        from neuraldbg.report.html import page

        try:
            html.write_text(page(diagnosis), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {html}: {error.strerror}")
        typer.echo(f"wrote {html}")
    else:
        from neuraldbg.report.text import rich_report

        Console().print(rich_report(diagnosis))


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


def explain(
    cause: Annotated[str | None, typer.Argument(help="A cause; without one all causes are listed.")] = None,
    as_json: _JSON = False,
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
    slug = cause.strip().lower().replace("-", "_").replace(" ", "_")
    if slug not in known:
        close = difflib.get_close_matches(slug, known, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "`neuraldbg explain` lists all causes"
        fail(f"unknown cause {cause!r}; {hint}")
    page = page_of(slug, known)
    typer.echo(json.dumps({"cause": slug, "page": page}, indent=1) if as_json else page)


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def doctor(as_json: _JSON = False) -> None:
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
    problems += _broken
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


def _print_version(wanted: bool) -> None:
    if wanted:
        from neuraldbg import __version__

        typer.echo(__version__)
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Why a PyTorch training failed: which cause, in which layer, since which step, and what to do."""


_broken: list[str] = []


def build() -> typer.Typer:
    """The application, with the commands that installed packages add (entry points `neuraldbg.commands`)."""
    out = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
    out.callback()(_main)
    for command in (show, explain, doctor):
        out.command()(command)
    for point in entry_points(group="neuraldbg.commands"):
        try:
            out.add_typer(point.load(), name=point.name)
        except Exception as error:  # another's package must not take the commands down; `doctor` says so
            _broken.append(f"the commands of {point.value} do not load: {error}")
    return out


app = build()
