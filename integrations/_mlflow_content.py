"""What a Diagnosis looks like in an MLflow run: tags, metrics, files, description. Pure, and without MLflow.

Keys are limited by MLflow (250 characters, no brackets, quotes or arrows), values are not; a metric may not be the
folder of another; infinities would be stored as 1.8e308 and NaN matches no filter, so neither is ever sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import neuraldbg
from neuraldbg.diagnosis import SCHEMA_VERSION, Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.run import NONFINITE

from ._content import clip, known_causes, layer_of, reports, shown, slug, total, weighed

KINDS = 12  # event tags a run: the run page and get_run get slow with many tags
NOTE_LIMIT = 5000  # oldest servers' limit of a tag value, and so of the description
BEGIN, END = "<!-- neuraldbg:begin -->", "<!-- neuraldbg:end -->"
TABLE = "neuraldbg/hypotheses.json"
PAGE = "neuraldbg.html"
PICTURE = "neuraldbg_graph.svg"


class Point(NamedTuple):
    """A metric's value at a step."""

    key: str
    value: float
    step: int


def opening_tags(extra: Mapping[str, str]) -> dict[str, str]:
    """What a run carries while it is watched."""
    return {
        **{key: clip(value) for key, value in extra.items()},
        "neuraldbg.verdict": str(Verdict.RUNNING),
        "neuraldbg.version": neuraldbg.__version__,
        "neuraldbg.schema": str(SCHEMA_VERSION),
    }


def event_tags(events: Iterable[SemanticEvent]) -> dict[str, str]:
    """Per symptom: where and when it came first, and how often."""
    first: dict[str, SemanticEvent] = {}
    count: dict[str, int] = {}
    for event in events:
        if event.is_recovery:
            continue
        kind = slug(event.symptom or event.event_type)
        count[kind] = count.get(kind, 0) + event.collapsed_count
        if kind not in first or event.order < first[kind].order:
            first[kind] = event
    kinds = sorted(first, key=lambda kind: first[kind].order)[:KINDS]
    return {f"neuraldbg.event.{kind}": event_tag(first[kind], count[kind]) for kind in kinds}


def event_tag(event: SemanticEvent, count: int) -> str:
    """`fc1@131 x14`."""
    place = f"{layer_of(event.layer_name)}@" if event.layer_name is not None else "@"
    return clip(f"{place}{event.step} x{count}")


def tags(diagnosis: Diagnosis, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags of a session that has ended; the same keys for a healthy run, so that all runs can be grouped."""
    top = shown(diagnosis)
    out = opening_tags(extra or {})
    out |= {
        "neuraldbg.verdict": str(diagnosis.verdict),
        "neuraldbg.cause": top.cause if top else "none",
        "neuraldbg.failure": top.failure_type if top else "none",
        "neuraldbg.layer": layer_of(top.layer_name) if top else "none",
        "neuraldbg.step": str(top.step) if top else "none",
        "neuraldbg.causes": ",".join(f"{h.cause}:{h.confidence:.2f}" for h in weighed(diagnosis)[:3]) or "none",
    }
    if diagnosis.facts.exception:
        out["neuraldbg.exception"] = diagnosis.facts.exception.partition(":")[0].strip()
    return {key: clip(value) for key, value in (out | event_tags(diagnosis.events)).items()}


def metrics(diagnosis: Diagnosis) -> list[Point]:
    """Finite values only; causes that were ruled out are 0, for a parallel plot shows no run that lacks a value."""
    last = max(diagnosis.steps - 1, 0)
    sure = dict.fromkeys(known_causes(), 0.0)
    for h in reversed(weighed(diagnosis)):
        sure[slug(h.cause)] = h.confidence
    top = shown(diagnosis)
    points = [
        Point("neuraldbg/events", total(diagnosis.events), last),
        Point("neuraldbg/top_confidence", top.confidence if top else 0.0, last),
        Point("neuraldbg/nonfinite_steps", len({e.step for e in diagnosis.events if e.symptom in NONFINITE}), last),
        *(Point(f"neuraldbg/cause/{cause}", value, last) for cause, value in sure.items()),
    ]
    if top:
        points.append(Point("neuraldbg/first_step", top.step, last))
    return [p for p in points if math.isfinite(p.value)]


def files(diagnosis: Diagnosis) -> dict[str, str]:
    """Path in the run's artifacts -> text. At the root stand the two that MLflow's compare page can show."""
    at_root = {"report.html": PAGE, "graph.svg": PICTURE}
    return {at_root.get(name, f"neuraldbg/{name}"): text for name, text in reports(diagnosis).items()}


def description(diagnosis: Diagnosis, experiment_id: str, run_id: str, *, linked: bool = True) -> str:
    """Our block of the run's description: the fold of the page shows about one line, so the verdict and link are first.

    The picture is found by a relative URL, which holds behind any prefix and without internet.
    """
    from neuraldbg.report.markdown import escape
    from neuraldbg.report.text import headline

    top = shown(diagnosis)
    first = f"**NeuralDBG: {diagnosis.verdict}**"
    if top:
        where = f" in {escape(layer_of(top.layer_name))}" if top.layer_name is not None else ""
        first += f" · {escape(top.cause)}{where} since step {top.step}"
    lines = [BEGIN, first]
    if linked:
        report = f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{PAGE}?workflowType=machine_learning"
        lines[-1] += f" · [report]({report})"
    lines += ["", escape(headline(diagnosis))]
    if linked and diagnosis.graph.nodes:
        alternative = escape(clip(f"Causal graph: {top.cause if top else diagnosis.verdict}"))
        lines += ["", f"![{alternative}](get-artifact?path={PICTURE}&run_uuid={run_id})"]
    return "\n".join([*lines, END])


def merged_note(existing: str, block: str) -> str:
    """The user's description with our block below it, or in the place of an older block; without it if too long."""
    before, found, rest = existing.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if found and ended:
        note, without = f"{before}{block}{after}", f"{before.rstrip()}{after}"
    else:
        note, without = (f"{existing.rstrip()}\n\n{block}" if existing.strip() else block), existing
    return note if len(note) <= NOTE_LIMIT else without


def registered_tables(existing: str) -> str:
    """MLflow's list of tables (a tag, JSON) with ours in it, once."""
    try:
        listed = json.loads(existing) if existing else []
    except ValueError:
        listed = []
    ours = {"path": TABLE, "type": "table"}
    return json.dumps(listed if ours in listed else [*listed, ours])
