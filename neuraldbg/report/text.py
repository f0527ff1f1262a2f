"""The verdict as plain text in at most six lines, and as a rich renderable for terminals."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.report.sentences import (
    NOTHING_SEEN,
    clean,
    confidence,
    evidence,
    exception,
    figure,
    listed,
    looked_at,
    not_looked_at,
    why_nothing,
)

STYLES = {Verdict.FAILED: "red", Verdict.WARNING: "yellow", Verdict.HEALTHY: "green", Verdict.RUNNING: "cyan"}
UNSEEN = "yellow"


def word(diagnosis: Diagnosis) -> str:
    """The verdict in a word, or that nothing was seen."""
    return "nothing seen" if diagnosis.saw_nothing else str(diagnosis.verdict)


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one sentence, without its word."""
    if diagnosis.saw_nothing:
        return NOTHING_SEEN
    shown = shown_hypothesis(diagnosis)
    if shown:
        return clean(shown.description, 600)
    steps = f"{diagnosis.steps} step{'' if diagnosis.steps == 1 else 's'}"
    if diagnosis.verdict is Verdict.FAILED:
        return f"The training failed within {steps}; there is not enough evidence to name a cause"
    if diagnosis.verdict is Verdict.WARNING:
        return f"Something is wrong that has not hurt the training in {steps}"
    if diagnosis.verdict is Verdict.RUNNING:
        return f"Nothing found so far in {steps}"
    return f"No sign of failure in {steps}{loss_words(diagnosis)}"


def shown_hypothesis(diagnosis: Diagnosis) -> CausalHypothesis | None:
    """The hypothesis that the verdict is about: a healthy run has none, and a note leads only a warning."""
    if diagnosis.verdict is Verdict.FAILED:
        return diagnosis.top
    if diagnosis.verdict is Verdict.WARNING:
        return diagnosis.top or (diagnosis.notes[0] if diagnosis.notes else None)
    return None


def advice(diagnosis: Diagnosis) -> CausalHypothesis | None:
    """What else is known of a healthy run, such as that it ended while it was still learning."""
    healthy = diagnosis.verdict is Verdict.HEALTHY and not diagnosis.saw_nothing and not diagnosis.facts.exception
    return next((n for n in diagnosis.notes if n.metadata.get("advice")), None) if healthy else None


def loss_words(diagnosis: Diagnosis) -> str:
    """How far the loss went, for a run in which nothing else is to be told."""
    points = diagnosis.series.get("loss", ())
    if len(points) < 2:
        return ""
    return f"; the loss went from {figure(points[0][1])} to {figure(points[-1][1])}"


def lines(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """(heading, text) of each line of the verdict; six at most."""
    coverage = diagnosis.facts.coverage
    seen = looked_at(coverage, diagnosis.steps)
    blind = not_looked_at(coverage)
    why = why_nothing(diagnosis.facts) if diagnosis.saw_nothing else ""
    if blind and blind != why:
        seen += f". Not looked at: {blind}"
    if (diagnosis.facts.world or 1) > 1:
        seen += f". This is rank {diagnosis.facts.rank} of {diagnosis.facts.world}; which was first: neuraldbg merge"
    out = [(word(diagnosis).upper(), headline(diagnosis))]
    if why:
        out.append(("Why", why))
    top = shown_hypothesis(diagnosis)
    if top:
        out.append(("Confidence", _sure(top)))
        against = listed(map(evidence, top.evidence_against), 1)
        said = listed(map(evidence, top.evidence), 3) or "none recorded"
        out.append(("Evidence", f"{said}. Against it: {against}" if against else said))
        if top.refuted_by:
            out.append(("Would disprove it", clean(top.refuted_by, 600)))
        if top.remedy:
            out.append(("Next", clean(top.remedy, 600)))
    elif diagnosis.verdict is Verdict.WARNING and (lasting := _lasting(diagnosis)):
        out.append(("Seen", listed(map(evidence, lasting), 3)))
    elif note := advice(diagnosis):
        out.append(("Note", f"{clean(note.description, 400)}. {clean(note.remedy, 200)}"))
    elif diagnosis.facts.exception:
        out.append(("Exception", exception(diagnosis.facts)))
    out.append(("Looked at", seen))
    return out


def _lasting(diagnosis: Diagnosis) -> list[SemanticEvent]:
    """What was seen and did not go away again, of a run whose warning has no cause to be named by."""
    left = {(e.symptom, e.layer_name): e.step for e in diagnosis.events if e.is_recovery}
    return [e for e in diagnosis.events if not e.is_recovery and e.step > left.get((e.symptom, e.layer_name), -1)]


def _sure(top: CausalHypothesis) -> str:
    """How sure, of which cause by its name, and where more is said of it."""
    cause = clean(top.cause, 100)
    return f"{confidence(top)} in {cause}; more on it: neuraldbg explain {cause}" if cause else confidence(top)


def further(diagnosis: Diagnosis) -> tuple[CausalHypothesis, ...]:
    """The hypotheses behind the first one, of a failed run."""
    return diagnosis.hypotheses[1:] if diagnosis.verdict is Verdict.FAILED else ()


def summary(diagnosis: Diagnosis) -> str:
    """The verdict as plain text: at most six lines, and on a failed run one more for each further hypothesis."""
    out = [f"{heading}: {text}" for heading, text in lines(diagnosis)]
    out += [f"Also possible: {clean(h, 600)} [{clean(h.cause, 100)}]" for h in further(diagnosis)]
    return "\n".join(out)


def rich_report(diagnosis: Diagnosis) -> RenderableType:
    """The same for a terminal: a panel and, where causes compete, a table of them."""
    colour = UNSEEN if diagnosis.saw_nothing else STYLES[diagnosis.verdict]
    (verdict, claim), *rest = lines(diagnosis)
    body = Table.grid(padding=(0, 2))
    body.add_column(style="bold", no_wrap=True)
    body.add_column(overflow="fold")
    for heading, text in rest:
        body.add_row(Text(heading), Text(text))
    panel = Panel(
        Group(Text(claim, style="bold"), Text(""), body),
        title=Text(verdict, style=f"bold {colour}"),
        title_align="left",
        border_style=colour,
        padding=(1, 2),
    )
    others = further(diagnosis)
    if not others:
        return panel
    table = Table(title="Other causes that were weighed", title_justify="left", box=None, padding=(0, 2))
    for column in ("confidence", "cause", "layer", "step"):
        table.add_column(column, justify="right" if column in ("confidence", "step") else "left", overflow="fold")
    for h in others:
        table.add_row(f"{h.confidence:.2f}", Text(clean(h.cause)), Text(clean(h.layer_name or "-")), str(h.step))
    return Group(panel, table)
