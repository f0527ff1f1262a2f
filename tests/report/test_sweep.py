"""A comparison as text, Markdown, JSON and one page: the same figures, everything escaped, nothing from outside."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from rich.console import Console

from neuraldbg.report.sweep import markdown, onset, rich_report, to_json
from neuraldbg.report.sweep_page import page
from neuraldbg.report.sweep_pictures import MOST_MARKS, by_parameter, pictured, timeline
from neuraldbg.sweep.compare import compare
from neuraldbg.sweep.rows import Row

NASTY = "<script>alert('x')</script>|\n`"


def rows(count=20, **more):
    return [
        Row(f"bad {k}", "failed", "learning_rate_too_high", "fc1", 10 + k, 0.8, {"lr": 1.0 + k / 100, **more})
        if k % 2
        else Row(
            f"fine {k}", "healthy", parameters={"lr": 0.001, "optimizer": "adam", **more}, where="https://t.example/1"
        )
        for k in range(count)
    ]


FOUND = compare(rows())


def terminal(found):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(rich_report(found))
    return captured.get()


def test_a_sweep_without_failures_says_so_and_draws_nothing():
    found = compare([Row("a", "healthy", parameters={"lr": 0.1}), Row("b")])
    assert str(found) == "1 training: 0 failed, 0 with a warning, 1 healthy; 1 more without a diagnosis"
    assert "1 training: 0 failed" in terminal(found) and "Look at" not in terminal(found)
    assert timeline(found) == "" and "When it began" not in page(found)
    assert "cause" not in markdown(found).splitlines()[-1]


def test_the_same_figures_stand_in_every_form():
    figures = "lr > 0.0318: 10 of 10, else 0 of 10 (lift 2.0, 1.4 to 2.0; p < 0.01)"
    for text in (str(FOUND), terminal(FOUND)):
        assert "20 trainings: 10 failed, 0 with a warning, 10 healthy" in text and figures in text
    assert figures.replace(">", "&gt;", 1).replace("<", "&lt;") in markdown(FOUND)
    assert figures.replace(">", "&gt;", 1).replace("<", "&lt;") in page(FOUND)
    assert onset(FOUND.causes[0]) == "20 (11 to 29)"


def test_json_holds_the_counts_the_split_and_the_trainings():
    told = json.loads(to_json(FOUND))
    assert next(iter(told)) == "schema_version" and told["verdicts"] == {"failed": 10, "warning": 0, "healthy": 10}
    (split,) = [s for s in told["causes"][0]["splits"] if s["condition"]["parameter"] == "lr"]
    assert (split["inside"], split["inside_with"], split["outside_with"]) == (10, 10, 0)
    assert len(told["rows"]) == 20 and told["rows"][1]["parameters"]["lr"] == 1.01


def test_names_and_values_are_escaped_everywhere():
    nasty = [
        Row(
            NASTY,
            "failed" if k % 2 else "healthy",
            NASTY if k % 2 else None,
            NASTY,
            k,
            0.5,
            {NASTY: NASTY * (1 + k % 2)},
        )
        for k in range(12)
    ]
    found = compare(nasty)
    assert "<script" not in page(found) and "&lt;script&gt;" in page(found)
    assert "<script" not in markdown(found) and all(line.count("\n") == 0 for line in str(found).split("\n"))
    assert "\n`" not in terminal(found)
    ElementTree.fromstring(by_parameter(found, NASTY))
    ElementTree.fromstring(timeline(found))


def test_a_link_is_one_only_if_it_leads_to_a_page():
    where = compare(
        [Row("a", "failed", "x", where="javascript:alert(1)"), Row("b", "healthy", where="https://t.example/1")]
    )
    assert re.findall(r'<a href="([^"]*)"', page(where)) == ["https://t.example/1"]


def test_the_page_needs_nothing_from_outside():
    assert not re.search(r"<script|<link|src=|@import|url\(", page(FOUND))


def test_numbers_lie_on_a_log_scale_where_they_span_decades_and_the_split_is_drawn():
    picture = by_parameter(FOUND, "lr")
    root = ElementTree.fromstring(picture)
    assert "lr (log scale)" in picture and picture.count("stroke-dasharray") == 1
    marks = [float(m.get("cx", 0)) for m in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(marks) == 20 and all(230 <= x <= 890 for x in marks)
    assert max(marks) - min(marks) > 500


def test_words_are_a_table_of_counts():
    found = compare(
        [
            Row(f"{k}", "failed" if k % 2 else "healthy", "x" if k % 2 else None, parameters={"o": "ab"[k % 2]})
            for k in range(12)
        ]
    )
    cells = [t.text for t in ElementTree.fromstring(by_parameter(found, "o")).iter("{http://www.w3.org/2000/svg}text")]
    assert cells.count("6") == 2 and {"a", "b"} <= set(cells)


def test_thousands_of_trainings_make_a_small_page():
    many = compare(rows(5000))
    assert len(page(many)) < 400_000 and "more, in the JSON" in page(many)
    assert by_parameter(many, "lr").count("<circle") <= 2 * MOST_MARKS


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0, -1.0])
def test_values_that_no_axis_holds_break_no_picture(value):
    found = compare([*rows(), Row("odd", "healthy", parameters={"lr": value})])
    ElementTree.fromstring(by_parameter(found, "lr"))
    json.loads(to_json(found))


def test_parameters_that_go_with_a_cause_are_drawn_first():
    assert pictured(FOUND)[0] == "lr"
    assert pictured(
        compare([Row("a", "healthy", parameters={"x": 1.0}), Row("b", "healthy", parameters={"x": 2.0})])
    ) == ["x"]
