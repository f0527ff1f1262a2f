"""What both trackers are told of a Diagnosis: short texts, counts, and the files of its report. Pure.

Everything finite: NaN matches no filter and draws as a hole, so it is never sent.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable
from functools import cache

import neuraldbg.report  # loaded here, on the training's thread: a worker could not put back what loading draws
import neuraldbg.rules
from neuraldbg.codec import encode
from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import SemanticEvent

TAG_LIMIT = 250  # MLflow takes 8000, but the run page shows tags as chips
EVENTS_KEPT = 5000  # lines of events.jsonl


def clip(text: object, limit: int = TAG_LIMIT) -> str:
    line = str(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def slug(text: str) -> str:
    """The text as part of a key: `[a-z0-9_]` only."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:100] or "unnamed"


def layer_of(name: str | None) -> str:
    return "none" if name is None else name or "(model)"


def shown(diagnosis: Diagnosis) -> CausalHypothesis | None:
    """The hypothesis that the verdict is about; a healthy run has none."""
    from neuraldbg.report.text import shown_hypothesis

    return shown_hypothesis(diagnosis)


def weighed(diagnosis: Diagnosis) -> tuple[CausalHypothesis, ...]:
    """All hypotheses that the verdict weighs, best first."""
    return diagnosis.hypotheses or (diagnosis.notes if diagnosis.verdict is Verdict.WARNING else ())


@cache
def known_causes() -> tuple[str, ...]:
    folder = pkgutil.iter_modules(neuraldbg.rules.__path__)
    return tuple(sorted(m.name for m in folder if not m.name.startswith("_")))


def is_empty(diagnosis: Diagnosis) -> bool:
    """Whether the session saw nothing that a run should be told of: no step, no event, no exception."""
    return not diagnosis.steps and not diagnosis.events and not diagnosis.facts.exception


def because(error: Exception | None) -> str:
    """` (OSError: out of order)`: the kind of an error and the first line of what it says; "" for none."""
    return f" ({type(error).__name__}: {clip(str(error).partition(chr(10))[0], 120)})" if error is not None else ""


def total(events: Iterable[SemanticEvent]) -> int:
    """How many transitions into trouble there were."""
    return sum(e.collapsed_count for e in events if not e.is_recovery)


def reports(diagnosis: Diagnosis) -> dict[str, str]:
    """File name -> text: the report in every form that a tracker may show or a reader open."""
    from neuraldbg.report.html import page
    from neuraldbg.report.json import to_json
    from neuraldbg.report.markdown import markdown
    from neuraldbg.report.mermaid import mermaid
    from neuraldbg.report.svg import svg
    from neuraldbg.report.tables import hypotheses_table

    lines = (json.dumps(encode(e), allow_nan=False) + "\n" for e in diagnosis.events[:EVENTS_KEPT])
    return {
        "report.html": page(diagnosis),
        "graph.svg": svg(diagnosis.graph),
        "report.md": markdown(diagnosis),
        "graph.mmd": mermaid(diagnosis.graph),
        "hypotheses.json": json.dumps(encode(hypotheses_table(diagnosis)), allow_nan=False),
        "diagnosis.json": to_json(diagnosis),
        "events.jsonl": "".join(lines),
    }
