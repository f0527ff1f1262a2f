"""`neuraldbg compare`: causes over many trainings, and the hyper-parameters that go with each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from neuraldbg.commands._common import SOURCES, Json, fail, said, write


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help=SOURCES),
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
    except (LookupError, OSError, ValueError) as error:
        fail(said(error))
    if not found.rows:
        fail(f"none of the {found.undiagnosed} trainings of {', '.join(sources)} has a diagnosis")
    from neuraldbg.report import sweep

    if as_json:
        typer.echo(sweep.to_json(found))
    elif markdown:
        typer.echo(sweep.markdown(found), nl=False)
    elif html is not None:
        from neuraldbg.report.sweep_page import page

        write(html, page(found))
        typer.echo(f"wrote {html}")
    else:
        Console().print(sweep.rich_report(found))
