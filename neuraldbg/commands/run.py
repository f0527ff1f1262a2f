"""`neuraldbg run`: watch a training script as it is."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from neuraldbg.commands._common import fail


class FailOn(str, Enum):
    """From which verdict on the exit code says so."""

    FAILED = "failed"
    WARNING = "warning"


def run(
    command: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="What stands behind `python`.")],
    module: Annotated[
        bool, typer.Option("-m", "--module", help="SCRIPT is a module's name, as for `python -m`.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where journal and report go; neuraldbg_runs/... by default."),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="Exit with 3 on this verdict or a worse one, if the script does not fail."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the diagnoses as one line of JSON, on stderr.")
    ] = False,
) -> None:
    """Run a script unchanged and say why its training failed.

    The script's arguments, output, signals and exit code are its own; the verdict goes to stderr, and with the journal
    into a folder. NEURALDBG=0 runs the script alone.
    """
    from neuraldbg.launch import Options, replace_process
    from neuraldbg.settings import make

    target, *arguments = command
    if not module and not os.path.isfile(target):
        hint = "; give the script in it" if os.path.isdir(target) else "; for a module: neuraldbg run -m MODULE"
        fail(f"there is no script {target}{hint}")
    try:
        make()
    except ValueError as error:
        fail(f"the settings are not valid: {error}")
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"cannot write into {folder}: {error.strerror}; choose another with --dir")
        if not os.access(folder, os.W_OK):
            fail(f"cannot write into {folder}; choose another with --dir")
    replace_process(
        Options(
            target=target,
            arguments=tuple(arguments),
            module=module,
            folder=None if folder is None else str(folder.absolute()),
            fail_on=None if fail_on is None else fail_on.value,
            as_json=as_json,
        )
    )
