"""Finished trainings as one Markdown page for people who were not there: a section a training, with its links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.report.markdown import escape
from neuraldbg.report.sentences import cause_words, layer
from neuraldbg.report.text import further, lines

if TYPE_CHECKING:
    from neuraldbg.sweep.rows import Row


VERDICTS = (
    ("failed", "failed"),
    ("warning", "with a warning"),
    ("healthy", "healthy"),
    ("running", "still running"),
    ("", "without a diagnosis"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """One training: its row, its diagnosis where that is at hand, and (label, address) of where to look at it.

    An address is a link (http, https) or a path relative to the page. known_as: an id that leads nowhere by itself.
    """

    row: Row
    diagnosis: Diagnosis | None = None
    links: tuple[tuple[str, str], ...] = ()
    known_as: str = ""


def counted(trainings: Sequence[Told]) -> str:
    """`3 trainings: 1 failed, 1 with a warning, 1 healthy`."""
    of = Counter(told.row.verdict for told in trainings)
    words = [f"{of[v]} {said}" for v, said in VERDICTS if of[v]]
    n = len(trainings)
    return f"{n} training{'' if n == 1 else 's'}: {', '.join(words) if words else 'none'}"


def page(trainings: Sequence[Told], day: date, title: str = "") -> str:
    """The whole page; the order of the trainings stays."""
    head = f"# {escape(title) or 'Training summary'}, {day.isoformat()}"
    sections = ["\n".join(section(told)) for told in trainings]
    return "\n\n".join([head, counted(trainings), *sections]) + "\n"


def section(told: Told) -> list[str]:
    """The lines of one training: verdict, causes and evidence, and where to look at it."""
    body = list(_row(told.row) if told.diagnosis is None else _diagnosis(told.diagnosis))
    links = [f"- **{escape(label)}:** {linked(address)}" for label, address in told.links]
    links += [f"- **Run:** {escape(told.known_as)}"] if told.known_as else []
    gap = [""] if links and not body[-1].startswith("- ") else []
    return [f"## {escape(told.row.name)}: {told.row.verdict or 'no diagnosis'}", "", *body, *gap, *links]


def _diagnosis(diagnosis: Diagnosis) -> Iterable[str]:
    (_, claim), *rest = lines(diagnosis)
    yield f"**{escape(claim)}**"
    yield ""
    yield from (f"- **{heading}:** {escape(text)}" for heading, text in rest)
    yield from (f"- **Also possible:** {escape(h)}" for h in further(diagnosis))


def _row(row: Row) -> Iterable[str]:
    """What a tracker's tags tell of a training."""
    if not row.verdict:
        yield "This run was not watched."
    elif row.cause is None:
        yield "No cause was named."
    else:
        place = f", in {layer(row.layer)}" if row.layer is not None else ""
        since = f", since step {row.step}" if row.step is not None else ""
        yield f"**{escape(f'Likely due to {cause_words(row.cause)}{place}{since}')}**"
        if row.confidence is not None:
            yield ""
            yield f"- **Confidence:** {row.confidence:.2f}"


def linked(address: str) -> str:
    """A Markdown link, or the text alone where the address could be taken for something else.

    >>> linked("runs/a b/neuraldbg.html")
    '[runs/a b/neuraldbg.html](runs/a%20b/neuraldbg.html)'
    """
    safe = quote(address, safe="/:#?=&%._-~")
    if re.match(r"[a-z][a-z0-9+.-]*:", address, re.IGNORECASE) and not re.match(r"https?://", address, re.IGNORECASE):
        return escape(address)
    return f"[{escape(address)}]({safe})"
