"""What the rules on bad data share: which feature, rows and samples it was, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuraldbg.events import SemanticEvent


def where_in_data(event: SemanticEvent) -> str:
    """The feature, the rows of the batch and the samples of the data set that an event names, as far as it does.

    >>> from neuraldbg.events import observed
    >>> where_in_data(observed("nan_input", 4, features=(3,), rows=(2,), samples=(321,)))
    'feature 3, row 2 of the batch, sample 321 of the data set'
    """
    known = event.metadata
    features = _whole(known.get("features")) or _whole((known.get("feature"),))
    rows, samples = _whole(known.get("rows")), _whole(known.get("samples"))
    parts = [_listed("feature", features)]
    parts.append(f"{_listed('row', rows)} of the batch" if rows else "")
    parts.append(f"{_listed('sample', samples)} of the data set" if samples else "")
    return ", ".join(filter(None, parts))


def joined(*parts: str) -> str:
    """The parts that say something, as one clause."""
    return "; ".join(filter(None, parts))


def _whole(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        return ()
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))


def _listed(name: str, numbers: Sequence[int], most: int = 4) -> str:
    if not numbers:
        return ""
    more = ", ..." if len(numbers) > most else ""
    return f"{name}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:most]))}{more}"
