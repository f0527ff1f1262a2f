"""The diagnosis as one self-contained HTML page, and as a fragment for notebooks; no script, nothing from outside."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.report.graph import COLOURS, event_group
from neuraldbg.report.pictures import health, loss_curve, row_name
from neuraldbg.report.sentences import (
    cause_words,
    clean,
    confidence,
    evidence,
    exception,
    layer,
    looked_at,
    numbers,
    why_nothing,
)
from neuraldbg.report.svg import svg
from neuraldbg.report.text import headline, shown_hypothesis, word

EVENT_ROWS = 200  # keeps the page far below 200 KB; the rest is in diagnosis.json
CARDS = 6
FRAME = (930.0, 1200.0)  # a page scrolls down, so a long chain may be tall
ITEMS = 6


@cache
def _template(name: str) -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return env.get_template(name)


def page(diagnosis: Diagnosis) -> str:
    """A whole page, to be kept as a file or shown by a tracker."""
    return _template("page.html.jinja").render(_context(diagnosis))


def fragment(diagnosis: Diagnosis) -> str:
    """The same without the page around it, for a notebook's cell."""
    return _template("fragment.html.jinja").render(_context(diagnosis))


def _context(diagnosis: Diagnosis) -> dict[str, Any]:
    from neuraldbg import __version__

    top = shown_hypothesis(diagnosis)
    ranked = [*diagnosis.hypotheses, *diagnosis.notes]
    return {
        "version": __version__,
        "schema": diagnosis.schema_version,
        "verdict": word(diagnosis),
        "tone": "unseen" if diagnosis.saw_nothing else str(diagnosis.verdict),
        "unseen": why_nothing(diagnosis.facts) if diagnosis.saw_nothing else "",
        "headline": headline(diagnosis),
        "top": None if top is None else {"confidence": confidence(top), "remedy": clean(top.remedy, 600)},
        "probability": f"{diagnosis.failure_probability:.2f}",
        "running": diagnosis.verdict is Verdict.RUNNING,
        "cards": [_card(h, claimed=i < len(diagnosis.hypotheses)) for i, h in enumerate(ranked[:CARDS])],
        "more_cards": max(0, len(ranked) - CARDS),
        "graph": Markup(svg(diagnosis.graph, FRAME)) if diagnosis.graph.nodes else "",
        "health": Markup(health(diagnosis)),
        "curve": Markup(loss_curve(diagnosis)),
        "legend": [(name, line) for name, (_, line) in COLOURS.items() if name not in ("cause", "other")],
        "events": [_row(e) for e in diagnosis.events[:EVENT_ROWS]],
        "more_events": max(0, len(diagnosis.events) - EVENT_ROWS),
        "couplings": [
            (clean(c.trigger), clean(c.consequence), c.step_difference, f"{c.confidence:.2f}")
            for c in diagnosis.couplings[:20]
        ],
        "coverage": _coverage(diagnosis),
        "blind": [clean(n) for n in diagnosis.facts.coverage.notes[:40]],
    }


def _card(h: CausalHypothesis, claimed: bool) -> dict[str, Any]:
    return {
        "claimed": claimed,
        "cause": clean(h.cause),
        "words": cause_words(h.cause),
        "failure": clean(h.failure_type).replace("_", " "),
        "layer": layer(h.layer_name) or "no single layer",
        "step": h.step,
        "confidence": confidence(h),
        "percent": round(100 * min(1.0, max(0.0, h.confidence))),
        "description": clean(h.description, 600),
        "evidence": [evidence(e) for e in h.evidence[:ITEMS]],
        "against": [evidence(e) for e in h.evidence_against[:ITEMS]],
        "chain": [clean(c, 120) for c in h.causal_chain[:12]],
        "refuted_by": clean(h.refuted_by, 600),
        "remedy": clean(h.remedy, 600),
    }


def _row(event: SemanticEvent) -> dict[str, Any]:
    first, last = event.step_range or (event.step, event.step)
    return {
        "step": str(first) if first == last else f"{first} to {last}",
        "where": clean(row_name(event), 120),
        "what": clean(f"back to {event.to_state}" if event.is_recovery else event.text),
        "group": event_group(event.event_type),
        "change": clean(f"{event.from_state} → {event.to_state}"),
        "numbers": clean(numbers(event.metadata)),
        "count": event.collapsed_count,
        "confidence": f"{event.confidence:.2f}",
    }


def _coverage(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.facts
    optimizers = ", ".join(
        f"{clean(o.kind)} (rate {', '.join(f'{r:.3g}' for r in o.rates[:4])})" for o in facts.optimizers
    )
    rows = [
        ("Looked at", looked_at(facts.coverage, diagnosis.steps)),
        ("Model", ", ".join(clean(m, 120) for m in facts.models[:8])),
        ("Optimizer", optimizers),
        ("Loss", clean(facts.loss_kind or "")),
        ("Exception", exception(facts)),
    ]
    return [(name, value) for name, value in rows if value]
