"""The diagnosis as Markdown to paste into an issue, with the causal graph as a Mermaid fence."""

from __future__ import annotations

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.report.mermaid import mermaid
from neuraldbg.report.sentences import clean, evidence
from neuraldbg.report.text import lines

EVIDENCE_ROWS = 20

# each of these could start markup, a mention, a reference, a table cell or HTML
_SPECIAL = frozenset("\\`*_[]|~$#")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def escape(text: object) -> str:
    """One line that Markdown shows as it is, in prose and in a table cell.

    >>> escape("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    out = []
    for c in clean(text, 600):
        out.append(_ENTITIES.get(c) or (f"\\{c}" if c in _SPECIAL else c))
    return "".join(out).replace("://", "&#58;//").replace("www.", "www&#46;")


def markdown(diagnosis: Diagnosis) -> str:
    """Verdict, hypotheses, graph, evidence and coverage."""
    (verdict, claim), *rest = lines(diagnosis)
    out = [f"## NeuralDBG: {verdict.lower()}", "", f"**{escape(claim)}**", ""]
    out += [f"- **{heading}:** {escape(text)}" for heading, text in rest]
    ranked = [*diagnosis.hypotheses, *diagnosis.notes]
    if ranked:
        out += ["", "| confidence | cause | layer | step | failure |", "| ---: | --- | --- | ---: | --- |"]
        for h in ranked:
            name = "" if h.layer_name is None else h.layer_name or "the model"
            cells = (f"{h.confidence:.2f}", escape(h.cause), escape(name), str(h.step), escape(h.failure_type))
            out.append(f"| {' | '.join(cells)} |")
    if diagnosis.graph.nodes:
        out += ["", "```mermaid", mermaid(diagnosis.graph).rstrip("\n"), "```"]
    if diagnosis.events:
        out += ["", f"<details><summary>Events ({len(diagnosis.events)})</summary>", ""]
        out += [f"- {escape(evidence(e))}" for e in diagnosis.events[:EVIDENCE_ROWS]]
        if len(diagnosis.events) > EVIDENCE_ROWS:
            out.append(f"- and {len(diagnosis.events) - EVIDENCE_ROWS} more")
        out += ["", "</details>"]
    return "\n".join(out) + "\n"
