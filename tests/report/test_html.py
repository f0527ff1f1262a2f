import dataclasses
import re
from html.parser import HTMLParser

import pytest

from neuraldbg.diagnosis import CausalGraph, Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.report.html import EVENT_ROWS, fragment, page

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Reading(HTMLParser):
    """Tags, attributes and text of a page; closing tags must match the open ones."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.mark.parametrize("name", ["failed", "healthy", "warning", "hostile"])
@pytest.mark.parametrize("render", [page, fragment])
def test_there_is_no_script_and_nothing_from_outside(name, render, request):
    text = render(request.getfixturevalue(name))
    reading = Reading(text)
    assert not {"script", "link", "iframe", "object", "img", "form", "base", "b<", "foreignobject"} & set(reading.tags)
    assert not [a for a, _ in reading.attributes if a.startswith("on") or a in ("href", "src", "xlink:href", "action")]
    namespaces = [v for a, v in reading.attributes if a == "xmlns"]
    assert text.count("http") == len(namespaces)
    assert "@import" not in text and "url(" not in text
    assert "object at 0x" not in text and "None" not in reading.text


def test_the_page_is_whole_and_the_fragment_is_a_part_of_it(failed):
    whole, part = page(failed), fragment(failed)
    assert whole.startswith("<!DOCTYPE html>") and '<meta charset="utf-8">' in whole
    assert part.strip() in whole and "<html" not in part
    assert failed._repr_html_() == part


def test_a_failed_page_tells_verdict_hypotheses_graph_loss_health_events_and_coverage(failed):
    reading = Reading(page(failed))
    assert reading.tags.count("svg") == 3
    for heading in ("Causal graph", "Hypotheses", "Loss", "Health of each layer", "What was seen", "Coverage"):
        assert heading in reading.text
    for said in (failed.top.description, failed.top.remedy, failed.top.refuted_by, "high (0.87), uncalibrated"):
        assert said in reading.text
    assert "onset, step 20" in reading.text
    assert reading.tags.count("tr") == 1 + len(failed.events) + 1 + len(failed.couplings)


def test_a_healthy_page_invents_nothing(healthy):
    reading = Reading(page(healthy))
    assert "No sign of failure in 40 steps" in reading.text
    assert "Hypotheses" not in reading.text and "Causal graph" not in reading.text and "onset" not in reading.text
    assert "No layer, loss, optimizer or batch left its healthy state." in reading.text


def test_a_note_is_marked_as_one(warning, failed):
    assert "a note, not a claim" in page(warning)
    assert "a note, not a claim" not in page(failed)


def test_a_diagnosis_of_nothing_has_a_page():
    assert "Nothing found so far in 0 steps" in page(Diagnosis(Verdict.RUNNING, 0.0))


def test_hostile_names_are_text(hostile):
    reading = Reading(page(hostile))
    for name in ("<script>alert(1)</script>", '"]; x[', "a|b|c", "```tick`s", "&amp; <b>bold</b> ]]> -->"):
        assert name in reading.text
    assert "\x1b" not in page(hostile)


def test_a_large_run_stays_under_200_kilobytes(failed):
    name = "module." * 40
    events = tuple(
        observed("dead_units", i, f"{name}{i}", share=0.5, growth_lg=3.0, names=("x" * 500,) * 50) for i in range(2000)
    )
    loss = tuple((i, 1.0 + i % 7) for i in range(20000))
    graph = CausalGraph(failed.graph.nodes * 9, failed.graph.edges)
    hypotheses = tuple(dataclasses.replace(failed.top, evidence=events, remedy="y" * 9000) for _ in range(40))
    text = page(
        dataclasses.replace(
            failed, events=events, series={"loss": loss}, hypotheses=hypotheses, graph=graph, steps=20000
        )
    )
    assert len(text.encode()) < 200_000
    assert f"and {2000 - EVENT_ROWS} more, in diagnosis.json" in text
    assert "and 34 weaker ones" in text


def test_numbers_in_the_page_do_not_depend_on_the_run_before(failed, healthy):
    first = page(failed)
    page(healthy)
    assert page(failed) == first
    assert not re.search(r"\bnan\b", page(healthy))
