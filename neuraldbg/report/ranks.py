"""Several ranks of one training in words, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from neuraldbg.report.sentences import clean
from neuraldbg.report.text import headline

if TYPE_CHECKING:
    from neuraldbg.ranks import Merged


def lines(merged: Merged) -> list[tuple[str, str]]:
    """(heading, text) of each line."""
    from neuraldbg.ranks import furthest

    out = []
    if merged.first is None:
        out.append(("First", "no rank shows a failure"))
    else:
        out.append(("First", f"rank {merged.first.rank}: {headline(merged.first.diagnosis)}"))
        out.append(("Where", _where(merged)))
    for rank, step in merged.later.items():
        out.append(("Then", f"rank {rank} from step {step} on"))
    for rank, steps in merged.stopped.items():
        out.append(("Stopped", f"rank {rank} after {steps} steps, without an end; the furthest has {furthest(merged)}"))
    if merged.missing:
        out.append(("Missing", f"no file of rank {', '.join(map(str, merged.missing))} of {merged.world}"))
    out += [(f"Rank {r.rank}", f"{r.diagnosis.verdict}: {headline(r.diagnosis)}") for r in merged.ranks]
    return out


def _where(merged: Merged) -> str:
    assert merged.first is not None
    event = merged.first.first
    step = event.step if event is not None else 0
    if merged.local:
        text = f"in that rank alone, at step {step}: its own data, weights or device, before gradients are averaged"
        return text + ("; the others had it from the averaged gradient" if merged.later else "")
    if len(merged.alike) > 1:
        return f"in ranks {', '.join(map(str, merged.alike))} at the same step {step}: nothing that one rank has alone"
    return f"at step {step}, where what all ranks share was updated"


def to_json(merged: Merged) -> str:
    first = merged.first
    event = first.first if first is not None else None
    top = first.diagnosis.top if first is not None else None
    data = {
        "world": merged.world,
        "first": None
        if first is None
        else {
            "rank": first.rank,
            "step": event.step if event is not None else None,
            "cause": top.cause if top is not None else None,
            "layer": top.layer_name if top is not None else None,
            "local": merged.local,
        },
        "alike": merged.alike,
        "later": merged.later,
        "stopped": merged.stopped,
        "missing": merged.missing,
        "ranks": [
            {
                "rank": r.rank,
                "source": clean(r.source, 400),
                "verdict": str(r.diagnosis.verdict),
                "cause": r.diagnosis.top.cause if r.diagnosis.top else None,
                "steps": r.diagnosis.steps,
            }
            for r in merged.ranks
        ],
    }
    return json.dumps(data, indent=1, allow_nan=False)
