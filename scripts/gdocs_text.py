"""A summary's Markdown as the requests that write it into a Google Doc."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MONOSPACE = {"weightedFontFamily": {"fontFamily": "Roboto Mono"}}
Request = dict[str, Any]


class Span(NamedTuple):
    """Part of a line, [start, end) in UTF-16 units, and how it looks."""

    start: int
    end: int
    style: Mapping[str, Any]


class Line(NamedTuple):
    """A paragraph as the document shows it."""

    text: str
    named: str = "NORMAL_TEXT"
    bullet: bool = False
    spans: tuple[Span, ...] = ()


def units(text: str) -> int:
    """Length as the Docs API counts it: in UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])|`(?P<code>[^`]+)`|\*\*(?P<bold>(?:\\.|[^*\\])+)\*\*"
    r"|\[(?P<label>(?:\\.|[^\]\\])+)\]\((?P<url>[^)\s]+)\)"
)


def inline(markdown: str) -> tuple[str, tuple[Span, ...]]:
    r"""The plain text of a Markdown line and its bold, code and linked parts.

    >>> inline(r"**a\_b** `c`")[0]
    'a_b c'
    """
    out, spans, last = "", [], 0
    for match in _INLINE.finditer(markdown):
        out += html.unescape(markdown[last : match.start()])
        last, start = match.end(), units(out)
        if match["escaped"]:
            out += match["escaped"]
            continue
        out += match["code"] or inline(match["bold"] or match["label"])[0]
        style: Mapping[str, Any] = {"bold": True}
        if match["code"]:
            style = MONOSPACE
        elif match["url"]:
            style = {"link": {"url": html.unescape(match["url"])}}
        spans.append(Span(start, units(out), style))
    return out + html.unescape(markdown[last:]), tuple(spans)


def parse(markdown: str) -> list[Line]:
    """Headings, bullets, fenced code and plain lines; blank lines go, for a paragraph has its own space."""
    out: list[Line] = []
    fenced = False
    for raw in markdown.splitlines():
        if raw.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            out.append(Line(raw, spans=(Span(0, units(raw), MONOSPACE),) if raw else ()))
            continue
        if not raw.strip() or re.fullmatch(r"\s*<!--.*-->\s*", raw):
            continue
        heading = re.match(r"(#{1,6})\s+(.*)", raw)
        bullet = re.match(r"\s*[-*]\s+(.*)", raw)
        text, spans = inline(heading[2] if heading else bullet[1] if bullet else raw.strip())
        named = f"HEADING_{len(heading[1])}" if heading else "NORMAL_TEXT"
        out.append(Line(text, named, bullet is not None and not heading, spans))
    return out


def plain(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _runs(lines: Sequence[Line], at: int) -> Iterator[tuple[int, int]]:
    """[start, end) of each unbroken run of bullets."""
    begun: int | None = None
    for line in lines:
        if line.bullet and begun is None:
            begun = at
        elif not line.bullet and begun is not None:
            yield begun, at
            begun = None
        at += units(line.text) + 1
    if begun is not None:
        yield begun, at


def requests(lines: Sequence[Line], end: int, text: str, mode: str) -> list[Request]:
    """One batch for a document whose body ends before index `end` and reads `text`; its last newline always stays."""
    out: list[Request] = []
    at, lead = 1, ""
    if mode == "replace":
        if end > 2:
            out.append({"deleteContentRange": {"range": {"startIndex": 1, "endIndex": end - 1}}})
    else:
        at, lead = end - 1, "" if text in ("", "\n") or text.endswith("\n\n") else "\n"
    out.append({"insertText": {"location": {"index": at}, "text": lead + plain(lines)}})
    at += units(lead)
    whole = {"startIndex": at, "endIndex": at + units(plain(lines)) + 1}
    written = {"startIndex": at, "endIndex": at + units(plain(lines))}
    # what is written takes the looks of what stood before it
    out += [
        {"updateParagraphStyle": _style(whole, "NORMAL_TEXT")},
        {"deleteParagraphBullets": {"range": whole}},
        {"updateTextStyle": {"range": written, "textStyle": {}, "fields": "bold,link,weightedFontFamily"}},
    ]
    start = at
    for line in lines:
        if line.named != "NORMAL_TEXT":
            place = {"startIndex": start, "endIndex": start + units(line.text) + 1}
            out.append({"updateParagraphStyle": _style(place, line.named)})
        for span in line.spans:
            place = {"startIndex": start + span.start, "endIndex": start + span.end}
            out.append({"updateTextStyle": {"range": place, "textStyle": span.style, "fields": ",".join(span.style)}})
        start += units(line.text) + 1
    for first, last in _runs(lines, at):
        place = {"startIndex": first, "endIndex": last}
        out.append({"createParagraphBullets": {"range": place, "bulletPreset": "BULLET_DISC_CIRCLE_SQUARE"}})
    return out


def _style(place: Mapping[str, int], named: str) -> Request:
    return {"range": place, "paragraphStyle": {"namedStyleType": named}, "fields": "namedStyleType"}
