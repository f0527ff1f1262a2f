"""`neuraldbg push`: each tracker's part is asked, and what fails stays and is told."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from neuraldbg import cli
from neuraldbg.commands import push as module


def run(*arguments):
    return CliRunner().invoke(cli.app, ["push", *map(str, arguments)])


def works(folder):
    return [f"{folder.name}-1", f"{folder.name}-2"]


def has_none(folder):
    raise FileNotFoundError(folder)


def is_down(folder):
    raise ConnectionError("refused\nby the server")


@pytest.fixture(name="installed")
def _installed(monkeypatch):
    def install(*names):
        points = [EntryPoint(name, f"{__name__}:{name}", "neuraldbg.pushers") for name in names]
        monkeypatch.setattr(module, "entry_points", lambda group: points)

    return install


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    done = run(tmp_path / "gone")
    assert done.exit_code == 2 and "give the one that NeuralDBG's warning named" in done.stderr


def test_a_folder_that_holds_nothing_is_told(installed, tmp_path):
    installed("has_none")
    done = run(tmp_path)
    assert done.exit_code == 2 and "holds nothing that was kept for a tracker (has_none)" in done.stderr


def test_what_was_pushed_is_listed(installed, tmp_path):
    installed("has_none", "works")
    done = run(tmp_path)
    assert done.exit_code == 0 and done.stdout == f"works: 2 pushed: {tmp_path.name}-1, {tmp_path.name}-2\n"
    assert json.loads(run(tmp_path, "--json").stdout)["pushed"] == {
        "works": [f"{tmp_path.name}-1", f"{tmp_path.name}-2"]
    }


def test_a_server_that_is_down_holds_up_no_other_and_is_told(installed, tmp_path):
    installed("is_down", "works")
    done = run(tmp_path)
    assert done.exit_code == 1 and "works: 2 pushed" in done.stdout
    assert f"neuraldbg: is_down: refused; it stays in {tmp_path}" in done.stderr
    assert json.loads(run(tmp_path, "--json").stdout)["failed"] == [f"is_down: refused; it stays in {tmp_path}"]
