"""A summary's Markdown as lines, and lines as requests in the Docs API's own counting."""

from __future__ import annotations

from datetime import date

import pytest
from gdocs_text import Line, Span, inline, parse, plain, requests, units

from neuraldbg.report.summary import Told, page
from neuraldbg.sweep.rows import Row


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("2 * 3 * 4 and a_b_c", "2 * 3 * 4 and a_b_c"),
        ("[no link] (at all)", "[no link] (at all)"),
        ("**open", "**open"),
        (r"\*\*no bold\*\*", "**no bold**"),
        (r"C:\new", r"C:\new"),
        ("&lt;script&gt; &#64;all &amp;", "<script> @all &"),
    ],
)
def test_what_only_looks_like_markup_stays_as_it_is(markdown: str, text: str) -> None:
    assert inline(markdown) == (text, ())


def test_bold_code_and_links_are_found_with_their_places() -> None:
    text, spans = inline(r"**a\_b** and `x*y` in [run \[1\]](https://h/#/r?a=1&amp;b=2)")
    assert text == "a_b and x*y in run [1]"
    assert [text[s.start : s.end] for s in spans] == ["a_b", "x*y", "run [1]"]
    assert spans[0].style == {"bold": True}
    assert spans[2].style == {"link": {"url": "https://h/#/r?a=1&b=2"}}


def test_places_are_counted_in_utf_16_units() -> None:
    _, spans = inline("\N{ROCKET} **b**")
    assert units("\N{ROCKET}") == 2
    assert spans == (Span(3, 4, {"bold": True}),)


def test_a_page_becomes_headings_bullets_and_lines_without_the_blank_ones() -> None:
    assert parse("# Title\n\ntext\n<!-- note -->\n- one\n* two\n\n## Sub\n#no heading\n") == [
        Line("Title", "HEADING_1"),
        Line("text"),
        Line("one", bullet=True),
        Line("two", bullet=True),
        Line("Sub", "HEADING_2"),
        Line("#no heading"),
    ]


def test_fenced_text_is_no_markup() -> None:
    lines = parse("```mermaid\ngraph TD\n# no heading\n- **no** bullet\n```\nafter")
    assert plain(lines) == "graph TD\n# no heading\n- **no** bullet\nafter"
    assert {(line.named, line.bullet) for line in lines} == {("NORMAL_TEXT", False)}


def test_an_empty_document_is_not_emptied_first() -> None:
    kinds = [next(iter(request)) for request in requests([Line("x")], 2, "\n", "replace")]
    assert "deleteContentRange" not in kinds


def test_the_last_newline_of_a_document_is_never_deleted() -> None:
    first = requests([Line("x")], 10, "old text\n", "replace")[0]
    assert first == {"deleteContentRange": {"range": {"startIndex": 1, "endIndex": 9}}}


def test_a_summary_of_ours_reads_there_as_it_was_meant() -> None:
    """What the page escapes for Markdown is plain text again, and its links lead where they led."""
    told = Told(Row("[x](http://y) <b>_1_", "healthy"), links=(("Run", "https://host/#/runs/a_b (1)"),))
    heading, *rest = parse(page([told], date(2026, 1, 2), "Runs & more"))
    assert (heading.text, heading.named) == ("Runs & more, 2026-01-02", "HEADING_1")
    assert [line.text for line in rest] == [
        "1 training: 1 healthy",
        "[x](http://y) <b>_1_: healthy",
        "No cause was named.",
        "Run: https://host/#/runs/a_b (1)",
    ]
    assert [span.style for span in rest[-1].spans] == [
        {"bold": True},
        {"link": {"url": "https://host/#/runs/a_b%20%281%29"}},
    ]
