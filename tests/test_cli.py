"""The command line as a whole: what it loads, what other packages add to it."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import typer
from typer.testing import CliRunner

from neuraldbg import __version__, cli
from neuraldbg.commands import doctor


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_version_is_the_packages():
    assert run("--version").stdout.strip() == __version__


def test_an_installed_package_adds_its_commands(monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [EntryPoint("extra", f"{__name__}:EXTRA", group)])
    done = CliRunner().invoke(cli.build(), ["extra", "hello"])
    assert done.exit_code == 0 and done.stdout == "hello\n"


def test_a_package_whose_commands_do_not_load_is_told_by_doctor_and_breaks_nothing(monkeypatch):
    monkeypatch.setattr(doctor, "broken", broken := [])
    monkeypatch.setattr(cli, "broken", broken)
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
