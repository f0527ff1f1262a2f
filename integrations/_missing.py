"""The one text for a tracker or framework that is not installed."""

from __future__ import annotations


def missing(extra: str) -> ImportError:
    """The error to raise `from` the ImportError of the package that `extra` brings."""
    return ImportError(
        f"neuraldbg.integrations.{extra} needs the package {extra!r}, which is not installed; "
        f"type: pip install 'neuraldbg[{extra}]'"
    )
