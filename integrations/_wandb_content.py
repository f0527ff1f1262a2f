"""What a Diagnosis looks like in a W&B run: columns, config, tags, history, table, page. Pure, and without wandb.

W&B groups runs by config and never by tag, shows summary values as columns, and draws a panel for each history key.
Only names of letters, digits and underscores are sure to sort and filter, so columns are named like that.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import neuraldbg
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.run import NONFINITE

from ._content import clip, layer_of, shown, slug, total, weighed

TAG = "neuraldbg:"  # in front of each tag of ours
TAG_LIMIT = 64  # W&B refuses a longer tag, and with it the whole list
TITLE_LIMIT = 63  # W&B's documentation: less than 64 characters
TEXT_LIMIT = 1000  # of an alert: what a mail or a chat message shows without scrolling
GRAPH = "neuraldbg/graph"
TABLE = "neuraldbg/hypotheses"
STEP = "neuraldbg/step"
FOLDER = "neuraldbg"  # in the run's files
OF_A_FAILURE = ("neuraldbg_first_step", "neuraldbg_exception")  # columns that not every session fills
OF_EVENTS = ("neuraldbg_first_event", "neuraldbg_first_event_step")
ARTIFACT_TYPE = "neuraldbg-diagnosis"

_TYPES: Mapping[str, Any] = {"rank": int, "step": int, "confidence": float}  # of the table's columns; the rest is text
_RANK = {Verdict.FAILED: 3, Verdict.WARNING: 2, Verdict.HEALTHY: 1, Verdict.RUNNING: 0}


def worst(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Of several sessions in one run the one to show: a run with a failed training has failed; the first of equals."""
    return max(diagnoses, key=lambda d: _RANK[d.verdict])


def columns(diagnosis: Diagnosis, sessions: int = 1) -> dict[str, str | int | float]:
    """Summary values, one type a key; the same keys for a healthy run, but for the place and time of a failure."""
    top = shown(diagnosis)
    ranked = [h for h in weighed(diagnosis) if h is not top]
    out: dict[str, str | int | float] = {
        "neuraldbg_verdict": str(diagnosis.verdict),
        "neuraldbg_failed": int(diagnosis.verdict is Verdict.FAILED),
        "neuraldbg_cause": clip(top.cause) if top else "none",
        "neuraldbg_cause_2": clip(ranked[0].cause) if ranked else "none",
        "neuraldbg_failure": top.failure_type if top else "none",
        "neuraldbg_layer": clip(layer_of(top.layer_name)) if top else "none",
        "neuraldbg_confidence": _finite(top.confidence) if top else 0.0,
        "neuraldbg_failure_probability": _finite(diagnosis.failure_probability),
        "neuraldbg_events": total(diagnosis.events),
        "neuraldbg_sessions": sessions,
    }
    if top:
        out["neuraldbg_first_step"] = top.step
    if diagnosis.facts.exception:
        out["neuraldbg_exception"] = clip(diagnosis.facts.exception.partition(":")[0].strip())
    return out


def claim(diagnosis: Diagnosis) -> tuple[str, str, str | None, int | None]:
    """What a reader takes from it: verdict, cause, layer, step."""
    top = shown(diagnosis)
    if top is None:
        return str(diagnosis.verdict), "none", None, None
    return str(diagnosis.verdict), top.cause, top.layer_name, top.step


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0


def config(diagnosis: Diagnosis) -> dict[str, str]:
    """The part of the run's config to group by: strings, for a group is a value."""
    top = shown(diagnosis)
    return {
        "verdict": str(diagnosis.verdict),
        "cause": clip(top.cause) if top else "none",
        "failure": top.failure_type if top else "none",
        "version": neuraldbg.__version__,
    }


def tags(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The verdict, and the cause if there is one."""
    top = shown(diagnosis)
    named = [str(diagnosis.verdict), *([top.cause] if top else [])]
    return tuple(clip(f"{TAG}{name}", TAG_LIMIT) for name in named)


def merged_tags(existing: Iterable[str], ours: Iterable[str]) -> tuple[str, ...]:
    """The user's tags in their order, then ours; what an earlier session left is replaced."""
    users = [tag for tag in existing if not tag.startswith(TAG)]
    return tuple(dict.fromkeys([*users, *ours]))


def severity(event: SemanticEvent) -> int:
    """2: values that are not finite, which no training recovers from by itself; 1: other trouble; 0: recovery."""
    if event.is_recovery:
        return 0
    return 2 if event.symptom in NONFINITE else 1


class Tally:
    """Events so far as numbers for the history: W&B keeps one value a key and row, so counts are running totals."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._severity = 0
        self._step = 0
        self.changed = False

    def add(self, event: SemanticEvent) -> None:
        self._step = max(self._step, event.step)
        self._severity = max(self._severity, severity(event))
        if not event.is_recovery:
            kind = slug(event.symptom or event.event_type)
            self._counts[kind] = self._counts.get(kind, 0) + event.collapsed_count
        self.changed = True

    def take(self) -> dict[str, int]:
        """The point to log now; the severity starts anew."""
        point = {
            STEP: self._step,
            "neuraldbg/events": sum(self._counts.values()),
            "neuraldbg/severity": self._severity,
            **{f"neuraldbg/event/{kind}": count for kind, count in self._counts.items()},
        }
        self._severity, self.changed = 0, False
        return point


def first_event(event: SemanticEvent) -> dict[str, str | int]:
    """Columns that tell of trouble while the training still runs."""
    place = f" in {layer_of(event.layer_name)}" if event.layer_name is not None else ""
    return {
        "neuraldbg_first_event": clip(f"{event.symptom or event.event_type}{place}"),
        "neuraldbg_first_event_step": event.step,
    }


def table(diagnosis: Diagnosis) -> tuple[list[str], list[list[Any]], list[Any]]:
    """Columns, rows and the type of each column; every value is of its type or None."""
    from neuraldbg.report.tables import hypotheses_table

    told = hypotheses_table(diagnosis)
    names: list[str] = told["columns"]
    kinds = [_TYPES.get(name, str) for name in names]
    rows = [[_cell(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in told["data"]]
    return names, rows, kinds


def _cell(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    return _finite(value) if kind is float else kind(value)


def graph_page(diagnosis: Diagnosis) -> str:
    """The headline and the causal graph as one small page: no script, nothing from outside; "" without a graph."""
    from neuraldbg.report.svg import svg
    from neuraldbg.report.text import headline

    if not diagnosis.graph.nodes:
        return ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>NeuralDBG: causal graph</title><style>'
        "body{margin:12px;background:#fff;color:#1f2328;font:14px/1.4 Helvetica,Arial,sans-serif}"
        "svg{max-width:100%;height:auto}</style></head>\n"
        f"<body><p>{html.escape(headline(diagnosis))}</p>\n{svg(diagnosis.graph)}</body></html>\n"
    )


def artifact_name(run_id: str) -> str:
    """W&B takes letters, digits and -_. in a name."""
    return f"neuraldbg-{re.sub(r'[^A-Za-z0-9_.-]', '-', run_id)}"[:128]


def alert_title(diagnosis: Diagnosis) -> str:
    top = shown(diagnosis)
    return clip(f"NeuralDBG: {diagnosis.verdict}{f', {top.cause}' if top else ''}", TITLE_LIMIT)


def alert_text(diagnosis: Diagnosis) -> str:
    """The verdict in its few lines, which name step and layer: an alert of an offline run comes when it is synced."""
    return clip(str(diagnosis), TEXT_LIMIT)


def event_alert(event: SemanticEvent) -> tuple[str, str]:
    """Title and text of the alert that a running training gets."""
    where = f" in layer {layer_of(event.layer_name)}" if event.layer_name is not None else ""
    return clip(f"NeuralDBG: {event.text}", TITLE_LIMIT), clip(f"{event.text}{where}, at step {event.step}", TEXT_LIMIT)
