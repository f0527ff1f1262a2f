"""`neuraldbg diff`: what it takes, prints and refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.journal import Journal
from neuraldbg.report.json import to_json


def run(*arguments):
    return CliRunner().invoke(cli.app, ["diff", *map(str, arguments)])


@pytest.fixture(name="sides")
def _sides(tmp_path):
    """Two runs whose losses part at step 7, where one gets a NaN in layer fc1."""
    for name, events in (("a", ()), ("b", (observed("nan_input", 7, "fc1"),))):
        folder = tmp_path / name
        folder.mkdir()
        series = {"loss": tuple((k, 1.0 + k * (name == "b" and k > 6)) for k in range(20))}
        diagnosis = Diagnosis(Verdict.HEALTHY, 0.02, events=events, series=series, steps=20)
        (folder / "diagnosis.json").write_text(to_json(diagnosis))
    return tmp_path / "a", tmp_path / "b"


def test_a_side_that_is_not_one_session_is_refused(sides, tmp_path):
    a, _ = sides
    assert f"there is no file or folder {tmp_path / 'c'}" in run(a, tmp_path / "c").stderr
    done = run(a, tmp_path)
    assert done.exit_code == 2 and f"holds 2 sessions, and one is compared with one; name one of: {a}" in done.stderr
    (tmp_path / "c").mkdir()
    assert "holds 0 sessions" in run(a, tmp_path / "c").stderr
    (a / "diagnosis.json").write_text("{}")
    assert "has no schema_version" in run(a / "diagnosis.json", a).stderr


def test_a_run_is_the_same_as_itself(sides):
    done = run(sides[0], sides[0])
    assert done.exit_code == 0 and "no difference in 20 steps" in done.stdout


def test_the_first_divergence_has_its_step_and_layer(sides):
    told = run(*sides).stdout
    assert "NaN values in the input at step 7 in layer 'fc1': - | 1x" in told and "loss at step 7: 1 | 8" in told
    plain = json.loads(run(*sides, "--json").stdout)
    assert (plain["first"]["step"], plain["first"]["layer"]) == (7, "fc1")
    assert plain["a"] == {"source": str(sides[0]), "verdict": "healthy", "cause": None, "steps": 20}


def test_a_tolerance_forgives(sides):
    plain = json.loads(run(*sides, "--tolerance", "100", "--json").stdout)
    assert plain["series"] == [] and plain["first"]["what"] == "NaN values in the input"
    assert run(*sides, "--tolerance", "-1").exit_code == 2


def test_the_journal_beside_a_diagnosis_gives_the_numbers(sides):
    a, b = sides
    journal = Journal(b / "journal.jsonl")
    journal.open(Diagnosis(Verdict.HEALTHY, 0.02).facts)
    journal.points(3, {"loss": 5.0})
    assert "loss at step 3: 1 | 5" in run(a, b).stdout
