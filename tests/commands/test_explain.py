"""`neuraldbg explain`: the list of causes, and the page of one."""

import json

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.commands.explain import page_of, pages


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


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
    known = pages()
    assert all(len(page_of(cause, known)) > 100 for cause in known)


def completions(monkeypatch, line):
    """What the shell offers when the tab key is pressed at the end of this line, as bash asks for it."""
    monkeypatch.setenv("_NEURALDBG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return CliRunner().invoke(cli.app, [], prog_name="neuraldbg").stdout.split()


def test_the_shell_completes_commands_and_causes(monkeypatch):
    assert completions(monkeypatch, "neuraldbg me") == ["merge"]
    assert completions(monkeypatch, "neuraldbg explain nan_") == ["nan_in_input"]
    assert completions(monkeypatch, "neuraldbg explain no_such_") == []
