"""A comparison of many trainings as text, for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from neuraldbg.codec import encode
from neuraldbg.report.markdown import escape
from neuraldbg.report.sentences import clean, layer

if TYPE_CHECKING:
    from neuraldbg.sweep.compare import CauseSummary, Comparison
    from neuraldbg.sweep.splits import Split

STYLES: Mapping[str, str] = {"failed": "red", "warning": "yellow", "healthy": "green"}


def counts(comparison: Comparison) -> str:
    """`60 trainings: 21 failed, 3 with a warning, 36 healthy`."""
    of = comparison.verdicts
    n = len(comparison.rows)
    told = f"{n} training{'' if n == 1 else 's'}: "
    told += f"{of.get('failed', 0)} failed, {of.get('warning', 0)} with a warning, {of.get('healthy', 0)} healthy"
    if comparison.undiagnosed:
        told += f"; {comparison.undiagnosed} more without a diagnosis"
    return told


def split_words(split: Split) -> str:
    """What goes with a cause, with the figures behind it in one line."""
    chance = "p < 0.01" if split.p is not None and split.p < 0.01 else f"p = {split.p:.2f}" if split.p else ""
    return (
        f"{clean(split.condition, 120)}: {split.inside_with} of {split.inside}, "
        f"else {split.outside_with} of {split.outside} "
        f"(lift {split.lift:.1f}, {split.low:.1f} to {split.high:.1f}{'; ' + chance if chance else ''})"
    )


def with_words(summary: CauseSummary) -> list[str]:
    return [split_words(s) for s in summary.splits] or [clean(summary.said, 300)]


def onset(summary: CauseSummary) -> str:
    """`120 (40 to 300)`: the median first step and its range."""
    if summary.steps is None:
        return ""
    first, median, last = summary.steps
    return f"{median:.0f}" if first == last else f"{median:.0f} ({first} to {last})"


def places(summary: CauseSummary) -> str:
    return ", ".join(f"{layer(name)} {count}x" for name, count in summary.layers)


def left_out_words(comparison: Comparison) -> str:
    return ", ".join(f"{clean(name, 60)} ({why})" for name, why in comparison.left_out.items())


def summary(comparison: Comparison) -> str:
    """Plain text: a line on all trainings, then some on each cause."""
    out = [counts(comparison)]
    for cause in _all(comparison):
        warned = f" and {cause.warned} with a warning" if cause.warned else ""
        out.append(f"{clean(cause.cause)}: {cause.failed} failed{warned}, {cause.share:.0%}")
        out += [f"  {line}" for line in with_words(cause)]
    return "\n".join(out)


def _all(comparison: Comparison) -> list[CauseSummary]:
    return [*([comparison.overall] if comparison.overall else []), *comparison.causes]


def rich_report(comparison: Comparison) -> RenderableType:
    """A table of the causes and what goes with each."""
    parts: list[RenderableType] = [Text(counts(comparison), style="bold"), Text("")]
    if comparison.causes:
        table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
        table.add_column("failed", justify="right")
        table.add_column("warned", justify="right")
        table.add_column("cause", overflow="fold", min_width=27)
        table.add_column("since step", overflow="fold")
        table.add_column("goes with", overflow="fold")
        for cause in _all(comparison):
            style = "bold" if cause is comparison.overall else "red" if cause.failed else "yellow"
            table.add_row(
                str(cause.failed),
                str(cause.warned or "-"),
                Text(clean(cause.cause), style=style),
                onset(cause) if cause is not comparison.overall else "",
                Text("\n".join(with_words(cause))),
            )
        parts.append(table)
        looked = [(c.cause, ", ".join(clean(r.name, 60) for r in c.examples[:3])) for c in comparison.causes]
        parts += [Text(""), Text("Look at", style="bold")]
        parts += [Text(f"  {clean(cause)}: {names}") for cause, names in looked]
    if comparison.left_out:
        parts += [Text(""), Text(f"Not compared: {left_out_words(comparison)}", style="dim")]
    return Group(*parts)


def markdown(comparison: Comparison) -> str:
    """The same to paste into an issue."""
    out = ["## NeuralDBG: causes over the trainings", "", f"**{escape(counts(comparison))}**", ""]
    if comparison.causes:
        out += [
            "| failed | warned | cause | since step | goes with | look at |",
            "| ---: | ---: | --- | --- | --- | --- |",
        ]
        for cause in _all(comparison):
            names = ", ".join(escape(r.name) for r in cause.examples[:3])
            goes = "<br>".join(escape(line) for line in with_words(cause))
            cells = (str(cause.failed), str(cause.warned), escape(cause.cause), escape(onset(cause)), goes, names)
            out.append(f"| {' | '.join(cells)} |")
    if comparison.left_out:
        out += ["", f"Not compared: {escape(left_out_words(comparison))}"]
    return "\n".join(out) + "\n"


def to_json(comparison: Comparison, indent: int | None = 1) -> str:
    """Everything, the trainings too; finite numbers only."""
    plain = encode(comparison)
    return json.dumps({"schema_version": plain.pop("schema_version"), **plain}, indent=indent, allow_nan=False)
