"""`neuraldbg doctor`: versions, settings, and what does not load."""

import json

from typer.testing import CliRunner

from neuraldbg import __version__, cli


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_doctor_lists_versions_and_settings():
    told = json.loads(run("doctor", "--json").stdout)
    assert told["versions"]["neuraldbg"] == __version__ and told["versions"]["torch"]
    assert told["settings"]["dense_steps"] >= 1 and told["problems"] == []
    assert "settings: dense_steps" in run("doctor").stdout


def test_doctor_tells_settings_that_are_not_valid(monkeypatch):
    monkeypatch.setenv("NEURALDBG_DENSE_STEPS", "many")
    done = run("doctor")
    assert done.exit_code == 1 and "the settings are not valid" in done.stdout and "dense_steps" in done.stdout
