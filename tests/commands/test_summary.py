"""`neuraldbg summary`: one page of what became of trainings, from folders and from a tracker."""

from __future__ import annotations

import json
from datetime import date
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.report.json import to_json
from neuraldbg.report.summary import Told, linked, page
from neuraldbg.sweep import rows
from neuraldbg.sweep.rows import Row

DEAD = observed("dead_units", 22, "act1", share=0.9)
FAILED = Diagnosis(
    Verdict.FAILED,
    0.9,
    hypotheses=(
        CausalHypothesis(
            "dead_neurons",
            "learning_rate_too_high",
            "act1",
            22,
            0.8,
            "Neuron death detected in layer 'act1' at step 22",
            "halve the rate",
            evidence=(DEAD,),
            refuted_by="a run with a tenth of the rate that dies too",
        ),
        CausalHypothesis("dead_neurons", "dead_relu_negative_bias", "act1", 22, 0.1, "Biases are negative"),
    ),
    events=(DEAD,),
    steps=40,
)
HEALTHY = Diagnosis(Verdict.HEALTHY, 0.01, steps=60, series={"loss": ((0, 2.3), (59, 0.1))})


def run(*arguments):
    return CliRunner().invoke(cli.app, ["summary", *map(str, arguments)])


@pytest.fixture(name="runs")
def _runs(tmp_path, monkeypatch):
    """Two sessions as `neuraldbg run` leaves them, one with its page, and the working directory beside them."""
    monkeypatch.chdir(tmp_path)
    for name, diagnosis in (("wide", FAILED), ("narrow", HEALTHY)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "diagnosis.json").write_text(to_json(diagnosis))
    (tmp_path / "runs" / "wide" / "neuraldbg.html").write_text("<!DOCTYPE html>")
    return tmp_path / "runs"


def sections(text):
    """Heading -> what stands below it."""
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_a_source_that_is_not_there_is_named(tmp_path):
    done = run(tmp_path / "gone")
    assert done.exit_code == 2 and f"there is no file or folder '{tmp_path / 'gone'}'" in done.stderr


def test_a_folder_without_a_session_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    done = run("empty")
    assert done.exit_code == 2 and "there is no diagnosis.json" in done.stderr
    assert not (tmp_path / "SESSION_SUMMARY.md").exists()


def test_a_page_that_cannot_be_written_is_an_error(runs, tmp_path):
    done = run(runs, "-o", tmp_path / "no" / "out.md")
    assert done.exit_code == 2 and "choose another with --output" in done.stderr


def test_a_reader_that_is_not_installed_is_named(runs):
    done = run("no_such_tracker:digits")
    assert done.exit_code == 2 and "there is no reader 'no_such_tracker'" in done.stderr


def test_the_page_has_a_section_for_each_training_and_is_written_where_it_says(runs, tmp_path):
    done = run("runs")
    assert done.exit_code == 0
    assert done.stdout == "wrote SESSION_SUMMARY.md: 2 trainings: 1 failed, 1 healthy\n"
    assert list(sections((tmp_path / "SESSION_SUMMARY.md").read_text())) == [
        "narrow/diagnosis.json: healthy",
        "wide/diagnosis.json: failed",
    ]


def test_a_failed_training_tells_cause_evidence_and_what_to_do(runs):
    wide = sections(run("runs", "-o", "-").stdout)["wide/diagnosis.json: failed"]
    assert "**Neuron death detected in layer 'act1' at step 22**" in wide
    for line in (
        "- **Confidence:** ",
        "- **Evidence:** ",
        "- **Would disprove it:** a run with a tenth of the rate that dies too",
        "- **Next:** halve the rate",
        "- **Also possible:** Biases are negative (confidence: 0.10)",
        "- **Report:** [runs/wide/neuraldbg.html](runs/wide/neuraldbg.html)",
    ):
        assert f"\n{line}" in wide


def test_a_healthy_training_says_so_and_names_no_cause(runs):
    narrow = sections(run("runs", "-o", "-").stdout)["narrow/diagnosis.json: healthy"]
    assert "No sign of failure in 60 steps; the loss went from" in narrow
    assert "Confidence" not in narrow and "Also possible" not in narrow
    assert "- **Diagnosis:** [runs/narrow/diagnosis.json](runs/narrow/diagnosis.json)" in narrow


def test_links_lead_from_the_page_and_not_from_the_working_directory(runs, tmp_path):
    (tmp_path / "pages").mkdir()
    run("runs", "--output", "pages/week.md")
    assert "](../runs/wide/neuraldbg.html)" in (tmp_path / "pages" / "week.md").read_text()


def test_json_gives_a_row_a_training(runs):
    found = json.loads(run("runs", "--json").stdout)
    assert [(row["verdict"], row["cause"], row["step"]) for row in found] == [
        ("healthy", None, None),
        ("failed", "learning_rate_too_high", 22),
    ]


def tracker(what):
    """A reader as an installed package would name it."""
    yield Row(f"{what}-a", "failed", "gradient_ascent", "fc1", 0, 0.7, {}, "http://127.0.0.1:5000/#/runs/1")
    yield Row(f"{what}-b", where="abc123")


def test_a_trackers_runs_have_sections_with_their_links(runs, monkeypatch):
    points = [EntryPoint("tracked", f"{__name__}:tracker", rows.GROUP)]
    monkeypatch.setattr(rows, "entry_points", lambda group: points)
    text = run("tracked:digits", "-o", "-").stdout
    assert "2 trainings: 1 failed, 1 without a diagnosis" in text
    first, second = sections(text).values()
    assert "**Likely due to" in first and "since step 0**" in first and "- **Confidence:** 0.70" in first
    assert "](http://127.0.0.1:5000/#/runs/1)" in first
    assert second.endswith("This run was not watched.\n\n- **Run:** abc123\n")


def test_a_name_that_is_markup_is_shown_as_it_is():
    text = page([Told(Row("[x](http://y) <b>#1", "healthy"))], date(2026, 1, 2), title="a_b*")
    assert text.startswith("# a\\_b\\*, 2026-01-02\n\n1 training: 1 healthy\n\n## ")
    assert "## \\[x\\](http&#58;//y) &lt;b&gt;\\#1: healthy\n" in text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("runs/a)b (2)/x.html", "[runs/a)b (2)/x.html](runs/a%29b%20%282%29/x.html)"),
        ("https://host/#/a", "[https&#58;//host/\\#/a](https://host/#/a)"),
    ],
)
def test_an_address_cannot_break_out_of_its_link(address, shown):
    assert linked(address) == shown
