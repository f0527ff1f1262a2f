"""Inputs and targets of a scale or offset that a network with usual initial weights cannot take."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import InputStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

BATCHES = 10  # that are looked at, after the first, the third and the last: one may be odd
RMS_LG = 1.2  # a feature of rms 16: weights of 1/sqrt(n) bring it far into the tails of a bounded function
OFFSET = 5.0  # mean over deviation: healthy runs reach 5.3
SPREAD_LG = 1.5  # largest over smallest feature: the small one is lost
TARGET_LG = 2.0  # rms of the targets; untrained outputs are of order one, so the first gradient is that large too


@dataclass(frozen=True)
class Seen:
    inputs: dict[str, tuple[InputStats, ...]]
    since: dict[str, int]
    told: frozenset[str] = frozenset()
    targets: int = 0


def initial(settings: Settings) -> Seen:
    return Seen({}, {})


def step(state: Seen, record: StepRecord, facts: RunFacts) -> tuple[Seen, list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    for x in record.inputs:
        batches = state.inputs.get(x.name, ())
        if len(batches) >= BATCHES or x.nans or x.infs or x.zeros:
            continue
        batches = (*batches, x)
        since = {x.name: record.step, **state.since}
        state = replace(state, inputs={**state.inputs, x.name: batches}, since=since)
        if x.name not in state.told and len(batches) in (1, 3, BATCHES):
            event = judge(x.name, batches, since[x.name])
            if event is not None:
                events.append(event)
                state = replace(state, told=state.told | {x.name})
    target = record.loss_stats.target_rms if record.loss_stats is not None else None
    if target is not None and state.targets == 0 and record.step < BATCHES and lg(target) > TARGET_LG:
        events.append(observed("unscaled_target", record.step, rms_lg=lg(target)))
        state = replace(state, targets=1)
    return state, events


def judge(name: str, batches: tuple[InputStats, ...], first: int) -> SemanticEvent | None:
    """The first batches of one input, which appeared at step `first`."""
    if len({len(b.means) for b in batches}) != 1:
        return None
    rms = [statistics.median(v) for v in zip(*(b.rms for b in batches), strict=True)]
    means = [statistics.fmean(v) for v in zip(*(b.means for b in batches), strict=True)]
    stds = [statistics.median(v) for v in zip(*(b.stds for b in batches), strict=True)]
    varied = [abs(m) / s for m, s in zip(means, stds, strict=True) if s > 0]
    used = [r for r in rms if r > 0]
    if not used:
        return None
    rms_lg, spread = lg(max(used)), lg(max(used)) - lg(min(used))
    offset = statistics.median(varied) if varied else 0.0
    if not (rms_lg > RMS_LG or offset > OFFSET or (spread > SPREAD_LG and rms_lg > 1)):
        return None
    return observed(
        "unscaled_input",
        first,
        input=name,
        rms_lg=rms_lg,
        offset=offset if math.isfinite(offset) else None,
        spread_lg=spread,
        feature=rms.index(max(rms)),
        features=len(rms),
    )
