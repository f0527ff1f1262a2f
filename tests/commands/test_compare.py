"""`neuraldbg compare`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.report.json import to_json


def run(*arguments):
    return CliRunner().invoke(cli.app, ["compare", *map(str, arguments)])


@pytest.fixture(name="runs")
def _runs(tmp_path):
    """Ten runs of `neuraldbg run train.py --lr ...`, of which those above 0.1 failed."""
    for k in range(10):
        folder = tmp_path / "runs" / f"run{k}"
        folder.mkdir(parents=True)
        found = CausalHypothesis("exploding_gradients", "learning_rate_too_high", "fc", 7, 0.8, "It diverged")
        diagnosis = Diagnosis(Verdict.FAILED, 0.9, (found,)) if k % 2 else Diagnosis(Verdict.HEALTHY, 0.02, steps=9)
        (folder / "diagnosis.json").write_text(to_json(diagnosis))
        (folder / "run.json").write_text(json.dumps({"arguments": ["--lr", "1.0" if k % 2 else "0.01"]}))
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone"], "there is no file or folder 'gone'"),
        (["comet:digits"], "there is no reader 'comet'"),
        (["."], "there is no diagnosis.json and no journal (.jsonl) in ."),
        (["x", "--json", "--markdown"], "choose one of --json, --markdown and --html"),
    ],
)
def test_what_cannot_be_compared_is_refused_without_a_traceback(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2 and done.stdout == "" and f"neuraldbg: {said}" in done.stderr


def test_trainings_of_which_none_is_diagnosed_are_refused(tmp_path):
    (tmp_path / "diagnosis.json").write_text(to_json(Diagnosis(Verdict.RUNNING, 0.02)))
    done = run(tmp_path)
    assert done.exit_code == 2 and "none of the 1 trainings" in done.stderr


def test_a_folder_of_runs_gives_the_cause_and_what_goes_with_it(runs):
    told = json.loads(run(runs, "--json").stdout)
    assert told["verdicts"] == {"failed": 5, "warning": 0, "healthy": 5}
    (cause,) = told["causes"]
    assert (cause["cause"], cause["failed"]) == ("learning_rate_too_high", 5)
    assert cause["splits"][0]["condition"] == {"parameter": "lr", "sign": ">", "value": 0.1}
    assert "lr > 0.1: 5 of 5" in " ".join(run(runs).stdout.split())
    assert "lr &gt; 0.1: 5 of 5" in run(runs, "--markdown").stdout


def test_the_page_is_written_and_named(runs, tmp_path):
    done = run(runs, "--html", tmp_path / "sweep.html")
    assert done.exit_code == 0 and done.stdout == f"wrote {tmp_path / 'sweep.html'}\n"
    assert (tmp_path / "sweep.html").read_text().startswith("<!DOCTYPE html>")
    assert "cannot write" in run(runs, "--html", tmp_path / "no" / "sweep.html").stderr
