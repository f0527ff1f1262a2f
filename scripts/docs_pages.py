"""The pages of the site that are made from the code, given to mkdocs as a hook (mkdocs.yml).

Nothing is written into docs/: these pages exist in the built site alone, so that none can be out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docs_api import api_page, settings_page
from docs_causes import cause_index, cause_page, examples, failure_index, failure_page, rules, trainings

from neuraldbg.diagnosis import FAILURE_TYPES
from neuraldbg.reasoning.calibration import load


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    sources, fitted, shown, kept = rules(), load(), examples(), trainings()
    out = {
        f"causes/{cause}.md": cause_page(cause, source, fitted.knows(cause), shown.get(cause, []), kept.get(cause))
        for cause, source in sources.items()
    }
    out |= {f"failures/{failure}.md": failure_page(failure, sources, kept) for failure in FAILURE_TYPES}
    return out | {
        "causes/index.md": cause_index(sources),
        "failures/index.md": failure_index(),
        "settings.md": settings_page(),
        "api.md": api_page(),
    }


def on_config(config: Any) -> Any:
    """mkdocs asks: anything else to set? The pages that benchmarks wrote join the navigation."""
    measured = sorted(file.name for file in (Path(config.docs_dir) / "benchmarks").glob("*.md"))
    if measured:
        config.nav.append({"Benchmarks": [f"benchmarks/{name}" for name in measured]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """mkdocs asks: which files has the site?"""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
