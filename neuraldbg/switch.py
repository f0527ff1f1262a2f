"""`NEURALDBG=0`: the one switch that turns everything off. It imports nothing, for it is asked before all else."""

from __future__ import annotations

import os

OFF = ("0", "false", "no", "off")


def is_off() -> bool:
    """Whether the environment turns NeuralDBG off."""
    return os.environ.get("NEURALDBG", "").strip().lower() in OFF
