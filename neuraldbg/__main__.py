"""`python -m neuraldbg` is the `neuraldbg` command."""

from neuraldbg.cli import app

app(prog_name="neuraldbg")
