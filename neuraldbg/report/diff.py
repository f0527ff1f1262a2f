"""The first divergence of two trainings in words, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuraldbg.codec import encode
from neuraldbg.report.sentences import clean, layer
from neuraldbg.report.text import headline

if TYPE_CHECKING:
    from neuraldbg.diagnosis import Diagnosis
    from neuraldbg.diff import Difference, Divergence

MOST = 6  # lines of a kind


def place(difference: Difference) -> str:
    """`at step 30 in layer 'fc1'`."""
    step = f" at step {difference.step}" if difference.step is not None else ""
    where = layer(difference.layer)
    return f"{step}{' in ' + where if where else ''}"


def one(difference: Difference) -> str:
    return f"{clean(difference.what)}{place(difference)}: {clean(difference.a, 120)} | {clean(difference.b, 120)}"


def lines(found: Divergence, a: Diagnosis, b: Diagnosis, names: Sequence[str]) -> list[tuple[str, str]]:
    """(heading, text) of each line."""
    out = [("A", clean(names[0])), ("B", clean(names[1]))]
    if found.is_none:
        out.append(("Same", f"no difference in {found.steps} steps, in weights, series and events"))
    elif found.first is None:
        out.append(("Same", f"no difference of numbers or events in {found.steps} steps"))
    else:
        out.append(("First", one(found.first)))
    out += [("Settings", one(d)) for d in found.settings[:MOST]]
    if len(found.settings) > MOST:
        out.append(("Settings", f"and {len(found.settings) - MOST} more"))
    out += [("Numbers", one(d)) for d in found.series]
    apart = [f"{float(k):.0%} from step {step}" for k, step in (found.apart or {}).items()]
    if apart:
        out.append(("Losses apart", ", ".join(apart)))
    out += [("Events", one(d)) for d in found.events[:MOST]]
    out += [(f"Verdict {n}", f"{d.verdict}: {headline(d)}") for n, d in zip("AB", (a, b), strict=True)]
    return out


def to_json(found: Divergence, a: Diagnosis, b: Diagnosis, names: Sequence[str]) -> str:
    sides = [
        {"source": name, "verdict": str(d.verdict), "cause": d.top.cause if d.top else None, "steps": d.steps}
        for name, d in zip(names, (a, b), strict=True)
    ]
    return json.dumps({"a": sides[0], "b": sides[1], **encode(found)}, indent=1, allow_nan=False)
