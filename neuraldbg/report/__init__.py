"""A Diagnosis as text, Markdown, Mermaid, SVG, HTML and JSON; the only place that makes sentences."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

from neuraldbg.diagnosis import Diagnosis


def _load_unnoticed(name: str) -> None:
    """rich draws from Python's generator when it is loaded, and a training may draw from the same."""
    state = random.getstate()
    importlib.import_module(name)
    random.setstate(state)


_load_unnoticed("rich.style")


def save(diagnosis: Diagnosis, path: Path) -> Path:
    """Write the diagnosis in the form that the path's ending names: .json, .html, .md, .svg, .mmd or .txt.

    Raises ValueError for another ending.
    """
    from neuraldbg.report import html, json, markdown, mermaid, svg, text

    makers = {
        ".json": json.to_json,
        ".html": html.page,
        ".md": markdown.markdown,
        ".svg": lambda d: svg.svg(d.graph),
        ".mmd": lambda d: mermaid.mermaid(d.graph),
        ".txt": text.summary,
    }
    if path.suffix not in makers:
        raise ValueError(f"cannot tell a format from {str(path)!r}; end it with one of: {', '.join(makers)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(makers[path.suffix](diagnosis), encoding="utf-8")
    return path
