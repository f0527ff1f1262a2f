"""A comparison of many trainings as one self-contained HTML page; no script, nothing from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from neuraldbg.report.html import _template
from neuraldbg.report.sentences import cause_words, clean
from neuraldbg.report.sweep import counts, left_out_words, onset, places, with_words
from neuraldbg.report.sweep_pictures import by_parameter, pictured, timeline

if TYPE_CHECKING:
    from neuraldbg.sweep.compare import CauseSummary, Comparison

MOST_RUNS = 300  # rows of the table; the rest is in the JSON


def page(comparison: Comparison) -> str:
    """A whole page."""
    return _template("sweep_page.html.jinja").render(_context(comparison))


def fragment(comparison: Comparison) -> str:
    """The same without the page around it, for a notebook's cell."""
    return _template("sweep.html.jinja").render(_context(comparison))


def _context(comparison: Comparison) -> dict[str, Any]:
    from neuraldbg import __version__

    place = {c.cause: k for k, c in enumerate(comparison.causes)}
    runs = sorted(comparison.rows, key=lambda row: (place.get(row.cause or "", len(place)), -(row.confidence or 0.0)))
    return {
        "version": __version__,
        "headline": counts(comparison),
        "overall": with_words(comparison.overall) if comparison.overall else [],
        "causes": [_cause(c) for c in comparison.causes],
        "pictures": [(clean(name), Markup(by_parameter(comparison, name))) for name in pictured(comparison)],
        "timeline": Markup(timeline(comparison)),
        "left_out": left_out_words(comparison),
        "parameters": [clean(name, 60) for name in comparison.parameters[:8]],
        "runs": [
            {
                "name": clean(row.name, 80),
                "link": row.where if row.where.startswith(("http://", "https://")) else "",
                "verdict": row.verdict,
                "cause": clean(row.cause or ""),
                "step": "" if row.step is None else row.step,
                "values": [_shown(row.parameters.get(name)) for name in comparison.parameters[:8]],
            }
            for row in runs[:MOST_RUNS]
        ],
        "more_runs": max(0, len(runs) - MOST_RUNS),
    }


def _cause(summary: CauseSummary) -> dict[str, Any]:
    return {
        "cause": clean(summary.cause),
        "words": cause_words(summary.cause),
        "failed": summary.failed,
        "warned": summary.warned,
        "percent": round(100 * summary.share),
        "onset": onset(summary),
        "places": places(summary),
        "goes_with": with_words(summary),
        "look_at": [
            (clean(row.name, 80), row.where if row.where.startswith(("http://", "https://")) else "")
            for row in summary.examples
        ],
    }


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else clean(value, 60)
