"""Switches of the environment alone. They import nothing, for `NEURALDBG=0`, which turns all off, is asked first."""

from __future__ import annotations

import os

OFF, ON = ("0", "false", "no", "off"), ("1", "true", "yes", "on")


def is_off() -> bool:
    """Whether the environment turns NeuralDBG off."""
    return _said() in OFF


def is_on() -> bool:
    """Whether the environment asks for NeuralDBG where no line of code does (a framework's own entry point)."""
    return _said() in ON


def _said() -> str:
    return os.environ.get("NEURALDBG", "").strip().lower()


def strict() -> bool:
    """Whether an error of ours is raised instead of logged (NEURALDBG_STRICT=1, for tests)."""
    return os.environ.get("NEURALDBG_STRICT", "") not in ("", "0")
