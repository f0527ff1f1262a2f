"""`neuraldbg show`: a saved diagnosis again, in any form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from neuraldbg.commands._common import Json, fail, load_all, write


def show(
    file: Annotated[
        Path, typer.Argument(help="A diagnosis.json, a journal (.jsonl), or a folder of them.", metavar="FILE|FOLDER")
    ],
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the causal graph in Mermaid's language.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Write the HTML page to OUT.")] = None,
) -> None:
    """Show a saved diagnosis, also of a run that was killed: its journal tells."""
    if as_json + markdown + mermaid + (html is not None) > 1:
        fail("choose one of --json, --markdown, --mermaid and --html")
    found = load_all(file)
    diagnoses = [diagnosis for _, diagnosis in found]
    if as_json:
        from neuraldbg.report.json import to_dict, to_json

        several = [to_dict(d) for d in diagnoses]
        typer.echo(to_json(diagnoses[0]) if len(several) == 1 else json.dumps(several, indent=1, allow_nan=False))
    elif markdown:
        from neuraldbg.report.markdown import markdown as as_markdown

        typer.echo("\n".join(map(as_markdown, diagnoses)), nl=False)
    elif mermaid:
        from neuraldbg.report.mermaid import mermaid as as_mermaid

        typer.echo("\n".join(as_mermaid(d.graph) for d in diagnoses), nl=False)
    elif html is not None:
        from neuraldbg.report.html import page

        if len(found) > 1:
            fail(f"{file} holds {len(found)} sessions and --html writes one; name one of: {_names(found)}")
        write(html, page(diagnoses[0]))
        typer.echo(f"wrote {html}")
    else:
        from neuraldbg.report.text import rich_report

        for path, diagnosis in found:
            if len(found) > 1:
                Console().print(str(path), style="bold", soft_wrap=True, markup=False, highlight=False)
            Console().print(rich_report(diagnosis))


def _names(found: Sequence[tuple[Path, object]]) -> str:
    return ", ".join(str(path) for path, _ in found[:10])
