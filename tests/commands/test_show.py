"""`neuraldbg show`: a diagnosis, a journal, a folder of sessions, in each form."""

import json

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, Diagnosis, GraphNode, Verdict
from neuraldbg.events import observed
from neuraldbg.journal import Journal, rebuild
from neuraldbg.report.json import from_json, to_json
from neuraldbg.report.markdown import markdown
from neuraldbg.report.mermaid import mermaid

DEAD = observed("dead_units", 22, "act1", share=0.9)
DIAGNOSIS = Diagnosis(
    Verdict.FAILED,
    0.9,
    hypotheses=(
        CausalHypothesis(
            "dead_neurons", "learning_rate_too_high", "act1", 22, 0.8, "Neuron death detected", evidence=(DEAD,)
        ),
    ),
    graph=CausalGraph((GraphNode("a", "dead units", "dead_units", 22, "act1"),)),
    events=(DEAD,),
    steps=40,
)


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def saved(tmp_path):
    file = tmp_path / "diagnosis.json"
    file.write_text(to_json(DIAGNOSIS))
    return file


def test_a_missing_file_is_named(tmp_path):
    done = run("show", tmp_path / "gone.json")
    assert done.exit_code == 2 and done.stdout == ""
    assert f"neuraldbg: there is no file {tmp_path / 'gone.json'}" in done.stderr


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"schema_version": 99}', '{"schema_version": 1}'])
def test_a_file_that_is_no_diagnosis_is_refused_without_a_traceback(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    done = run("show", file)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith(f"neuraldbg: {file}: this ")


def test_a_binary_file_is_refused_without_a_traceback(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(b"\x80\x02\xff\xfe")
    done = run("show", file)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)


def test_a_journal_is_shown_like_the_diagnosis_that_it_ends_with(saved, tmp_path):
    journal = Journal(tmp_path / "run.jsonl")
    journal.open(DIAGNOSIS.facts)
    journal.event(DEAD)
    journal.close(DIAGNOSIS)
    done = run("show", journal.path, "--json")
    assert done.exit_code == 0 and from_json(done.stdout) == rebuild(journal.path)
    assert from_json(done.stdout).events == (DEAD,)


def test_a_journal_without_a_header_is_refused_without_a_traceback(tmp_path):
    (tmp_path / "run.jsonl").write_text("no journal\n")
    done = run("show", tmp_path / "run.jsonl")
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)


def test_two_formats_at_once_are_refused(saved):
    done = run("show", saved, "--json", "--markdown")
    assert done.exit_code == 2 and "choose one of" in done.stderr


def test_show_prints_the_verdict(saved):
    done = run("show", saved)
    assert done.exit_code == 0
    assert "FAILED" in done.stdout and "Neuron death detected" in done.stdout


def test_show_prints_json_markdown_and_mermaid_as_the_reports_make_them(saved):
    assert from_json(run("show", saved, "--json").stdout) == DIAGNOSIS
    assert run("show", saved, "--markdown").stdout == markdown(DIAGNOSIS)
    assert run("show", saved, "--mermaid").stdout == mermaid(DIAGNOSIS.graph)


def test_show_writes_the_page_and_says_where(saved, tmp_path):
    done = run("show", saved, "--html", tmp_path / "out.html")
    assert done.exit_code == 0 and done.stdout == f"wrote {tmp_path / 'out.html'}\n"
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_an_error(saved, tmp_path):
    done = run("show", saved, "--html", tmp_path / "no" / "out.html")
    assert done.exit_code == 2 and "cannot write" in done.stderr


def test_a_folder_without_a_session_is_refused(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event_type": "data_anomaly"}\n')
    done = run("show", tmp_path)
    assert done.exit_code == 2 and f"there is no diagnosis.json and no journal (.jsonl) in {tmp_path}" in done.stderr


def test_a_folder_shows_each_of_its_sessions_once(saved, tmp_path):
    for name in ("journal.jsonl", "journal-2.jsonl"):
        journal = Journal(tmp_path / name)
        journal.open(DIAGNOSIS.facts)
        journal.close(DIAGNOSIS)
    assert [from_json(json.dumps(d)) for d in json.loads(run("show", tmp_path, "--json").stdout)] == [DIAGNOSIS] * 2
    assert run("show", tmp_path).stdout.count("Neuron death detected") == 2
    assert "diagnosis.json" in run("show", tmp_path).stdout.splitlines()[0]


def test_one_page_is_not_written_for_two_sessions(saved, tmp_path):
    (tmp_path / "diagnosis-2.json").write_text(to_json(DIAGNOSIS))
    done = run("show", tmp_path, "--html", tmp_path / "out.html")
    assert done.exit_code == 2 and "holds 2 sessions" in done.stderr and not (tmp_path / "out.html").exists()
