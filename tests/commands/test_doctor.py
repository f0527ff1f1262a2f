"""`neuraldbg doctor`: versions, settings, and what does not load."""

import json
from importlib.metadata import distributions

from typer.testing import CliRunner

from neuraldbg import __version__, cli
from neuraldbg.commands import doctor


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_doctor_lists_versions_and_settings():
    told = json.loads(run("doctor", "--json").stdout)
    assert told["versions"]["neuraldbg"] == __version__ and told["versions"]["torch"]
    assert told["settings"]["dense_steps"] >= 1 and told["problems"] == []
    assert "settings: dense_steps" in run("doctor").stdout


def test_doctor_says_which_trackers_and_frameworks_are_installed():
    told = json.loads(run("doctor", "--json").stdout)["versions"]
    there = {found.metadata["Name"]: found.version for found in distributions()}
    for package in (*doctor.TRACKERS, *doctor.FRAMEWORKS):
        assert told[package] == there.get(package), package


def test_a_framework_that_is_missing_is_no_problem(monkeypatch):
    monkeypatch.setattr(doctor, "FRAMEWORKS", ("no-such-framework",))
    done = run("doctor")
    assert done.exit_code == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith("no-such-framework"))
    assert row.split(maxsplit=1)[1].strip() == "not installed (optional)"


def test_doctor_tells_settings_that_are_not_valid(monkeypatch):
    monkeypatch.setenv("NEURALDBG_DENSE_STEPS", "many")
    done = run("doctor")
    assert done.exit_code == 1 and "the settings are not valid" in done.stdout and "dense_steps" in done.stdout


def test_a_batch_without_a_model_is_refused():
    assert "--input needs a model" in run("doctor", "--input", "3,4").stderr
    assert "names no model" in run("doctor", "nets").stderr


def test_of_a_model_the_modules_are_listed_and_with_a_batch_which_of_them_ran(tmp_path):
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.used, self.spare = nn.Linear(4, 1), nn.Linear(4, 1)\n"
        "    def forward(self, x):\n"
        "        return self.used(x)\n"
    )
    done = run("doctor", f"{tmp_path / 'nets.py'}:Net", "--input", "8,4")
    assert (
        done.exit_code == 0 and "3 modules, 4 parameters (4 trainable) would be watched; 2 modules ran" in done.stdout
    )
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:4]}
    assert rows["used"][-1] == "0" and rows["spare"][-1] == "never"
    told = json.loads(run("doctor", f"{tmp_path / 'nets.py'}:Net", "--json").stdout)
    assert [m["name"] for m in told["modules"]] == ["", "used", "spare"]
