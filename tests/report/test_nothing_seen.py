"""A session that saw nothing is called neither healthy nor anything else, in every form."""

import dataclasses
import re

import pytest
from rich.console import Console

from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.record import Coverage, RunFacts
from neuraldbg.report.html import fragment, page
from neuraldbg.report.json import from_dict, to_dict
from neuraldbg.report.markdown import markdown
from neuraldbg.report.text import rich_report, summary
from neuraldbg.sweep.rows import row

SAID = "Nothing was seen of a training, so whether it is healthy is not known"


def on_terminal(diagnosis: Diagnosis) -> str:
    console = Console(width=400)
    with console.capture() as capture:
        console.print(rich_report(diagnosis))
    return capture.get()


def plain(html: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


@pytest.mark.parametrize(
    "something",
    [
        {"steps": 1},
        {"events": (observed("nan_input", 0),)},  # appended by hand, without a training
        {"series": {"loss": ((0, 1.0),)}},
        {"verdict": Verdict.RUNNING},  # it may still come
    ],
)
def test_who_saw_a_step_a_number_or_an_event_or_still_looks_did_not_see_nothing(unseen, something):
    seen = dataclasses.replace(unseen, **something)
    assert not seen.saw_nothing and "NOTHING SEEN" not in summary(seen) and "nothing_seen" not in to_dict(seen)


@pytest.mark.parametrize("name", ["failed", "healthy", "warning", "hostile"])
def test_no_other_diagnosis_says_that_nothing_was_seen(name, request):
    diagnosis = request.getfixturevalue(name)
    for told in (summary(diagnosis), markdown(diagnosis), plain(page(diagnosis)), on_terminal(diagnosis)):
        assert "nothing seen" not in told.lower() and SAID not in told


@pytest.mark.parametrize("verdict", [Verdict.WARNING, Verdict.HEALTHY])
def test_every_form_says_that_nothing_was_seen_and_why_that_may_be(unseen, verdict):
    """One of an earlier version, which had the verdict healthy, too."""
    diagnosis = dataclasses.replace(unseen, verdict=verdict)
    assert diagnosis.saw_nothing
    for told in (summary(diagnosis), markdown(diagnosis), plain(fragment(diagnosis)), on_terminal(diagnosis)):
        assert "nothing seen" in told.lower() and SAID in told and "a copy of it was trained" in told
        assert "No sign of failure" not in told and "Probability that the run failed" not in told
    assert "a copy of it was trained" in to_dict(diagnosis)["nothing_seen"]
    assert "its healthy state" not in page(diagnosis)
    assert from_dict(to_dict(diagnosis)) == diagnosis


def test_one_that_was_switched_off_says_that_and_says_it_once(unseen):
    off = "watching is off: enabled=False"
    said = summary(dataclasses.replace(unseen, facts=RunFacts(coverage=Coverage(notes=(off,)))))
    assert f"Why: {off}" in said and said.count(off) == 1


def test_one_that_was_never_entered_says_so(unseen):
    assert "Why: no model was entered" in summary(dataclasses.replace(unseen, facts=RunFacts()))


def test_an_exception_before_the_first_step_is_told_too(unseen):
    facts = dataclasses.replace(unseen.facts, exception="ValueError")
    said = summary(dataclasses.replace(unseen, facts=facts))
    assert said.startswith("NOTHING SEEN") and "Exception: ValueError" in said


def test_a_comparison_counts_it_among_those_without_a_diagnosis(unseen, healthy):
    assert row(healthy, "a", {}).verdict == "healthy"
    assert row(unseen, "a", {}).verdict == ""
