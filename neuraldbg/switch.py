"""Switches of the environment alone. They import nothing, for `NEURALDBG=0`, which turns all off, is asked first."""

from __future__ import annotations

import os

OFF = ("0", "false", "no", "off")


def is_off() -> bool:
    """Whether the environment turns NeuralDBG off."""
    return os.environ.get("NEURALDBG", "").strip().lower() in OFF


def strict() -> bool:
    """Whether an error of ours is raised instead of logged (NEURALDBG_STRICT=1, for tests)."""
    return os.environ.get("NEURALDBG_STRICT", "") not in ("", "0")
