"""The command line: the commands of `neuraldbg.commands`, and what installed packages add to them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from neuraldbg.commands.compare import compare
from neuraldbg.commands.demo import demo
from neuraldbg.commands.diff import diff
from neuraldbg.commands.doctor import broken, doctor
from neuraldbg.commands.explain import explain
from neuraldbg.commands.merge import merge
from neuraldbg.commands.push import push
from neuraldbg.commands.run import run
from neuraldbg.commands.show import show
from neuraldbg.commands.summary import summary

PASS_ON = {"allow_interspersed_args": False}  # what stands behind the script's name is the script's


def _print_version(wanted: bool) -> None:
    if wanted:
        from neuraldbg import __version__

        typer.echo(__version__)
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Why a PyTorch training failed: which cause, in which layer, since which step, and what to do."""


def build() -> typer.Typer:
    """The application, with the commands that installed packages add (entry points `neuraldbg.commands`)."""
    out = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)
    out.callback()(_main)
    out.command(context_settings=PASS_ON)(run)
    for command in (show, explain, compare, diff, merge, summary, push, doctor, demo):
        out.command()(command)
    for point in entry_points(group="neuraldbg.commands"):
        try:
            out.add_typer(point.load(), name=point.name)
        except Exception as error:  # another's package must not take the commands down; `doctor` says so
            broken.append(f"the commands of {point.value} do not load: {error}")
    return out


app = build()
