"""The command line: each command on a good file, on a bad one, and what it says."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from neuraldbg import __version__, cli
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


def test_explain_lists_every_cause_with_words():
    listed = json.loads(run("explain", "--json").stdout)
    assert listed["schedule_jump"] == "a jump of the learning rate"
    assert run("explain").stdout.count("\n") > len(listed)


@pytest.mark.parametrize("typed", ["schedule_jump", "Schedule-Jump", "schedule jump"])
def test_explain_prints_the_page_of_a_cause(typed):
    import neuraldbg.rules.schedule_jump as rule

    done = run("explain", typed)
    assert done.exit_code == 0
    assert done.stdout.strip() == rule.__doc__.strip()
    assert json.loads(run("explain", typed, "--json").stdout) == {"cause": "schedule_jump", "page": done.stdout[:-1]}


def test_an_unknown_cause_is_an_error_that_lists_close_ones():
    done = run("explain", "schedule_jmp")
    assert done.exit_code == 2
    assert "unknown cause 'schedule_jmp'; did you mean schedule_jump" in done.stderr
    assert "`neuraldbg explain` lists all causes" in run("explain", "zzzzzz").stderr


def test_every_cause_that_is_listed_has_a_page():
    known = cli.pages()
    assert all(len(cli.page_of(cause, known)) > 100 for cause in known)


def test_version_is_the_packages():
    assert run("--version").stdout.strip() == __version__


def test_doctor_lists_versions_and_settings():
    told = json.loads(run("doctor", "--json").stdout)
    assert told["versions"]["neuraldbg"] == __version__ and told["versions"]["torch"]
    assert told["settings"]["dense_steps"] >= 1 and told["problems"] == []
    assert "settings: dense_steps" in run("doctor").stdout


def test_doctor_tells_settings_that_are_not_valid(monkeypatch):
    monkeypatch.setenv("NEURALDBG_DENSE_STEPS", "many")
    done = run("doctor")
    assert done.exit_code == 1 and "the settings are not valid" in done.stdout and "dense_steps" in done.stdout


def test_an_installed_package_adds_its_commands(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [EntryPoint("extra", f"{__name__}:EXTRA", group)])
    done = CliRunner().invoke(cli.build(), ["extra", "hello"])
    assert done.exit_code == 0 and done.stdout == "hello\n"


def test_a_package_whose_commands_do_not_load_is_told_by_doctor_and_breaks_nothing(monkeypatch):
    monkeypatch.setattr(cli, "_broken", [])
    monkeypatch.setattr(cli, "entry_points", lambda group: [EntryPoint("gone", "no_such_package:app", group)])
    app = cli.build()
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1 and "the commands of no_such_package:app do not load" in done.stdout
    assert CliRunner().invoke(app, ["--version"]).exit_code == 0


def test_the_command_line_starts_without_torch():
    code = "import sys, neuraldbg.cli; print([m for m in ('torch', 'mlflow', 'jinja2') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


EXTRA = typer.Typer()


@EXTRA.callback()
def _extra():
    """Keeps the one command below a command of its own."""


@EXTRA.command()
def hello():
    typer.echo("hello")
