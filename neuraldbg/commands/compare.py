"""`neuraldbg compare`: causes over many trainings, and the hyper-parameters that go with each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from neuraldbg.commands._common import Json, fail


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Folders or files of diagnoses and journals, or mlflow:EXPERIMENT."),
    ],
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write one HTML page to OUT.")] = None,
) -> None:
    """Say which causes many trainings have, how often, and which hyper-parameters go with each."""
    if as_json + markdown + (html is not None) > 1:
        fail("choose one of --json, --markdown and --html")
    from neuraldbg.sweep.compare import compare as compared

    try:
        found = compared(*sources)
    except LookupError as error:
        fail(str(error.args[0] if error.args else error))
    except (OSError, ValueError) as error:
        fail(str(error))
    if not found.rows:
        fail(f"none of the {found.undiagnosed} trainings of {', '.join(sources)} has a diagnosis")
    from neuraldbg.report import sweep

    if as_json:
        typer.echo(sweep.to_json(found))
    elif markdown:
        typer.echo(sweep.markdown(found), nl=False)
    elif html is not None:
        from neuraldbg.report.sweep_page import page

        try:
            html.write_text(page(found), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {html}: {error.strerror}")
        typer.echo(f"wrote {html}")
    else:
        Console().print(sweep.rich_report(found))
