"""The inputs leave what they were: a shift of a feature, or values decades further out than before."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import InputStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

BASELINE = 15  # batches that say what is normal (evidence.md 2: in_shift)
SHIFT = 15.0  # healthy runs reach 11 (evidence.md 2); a mean that moves by this is no sampling noise
SHIFT_STD = 1.0  # and it must matter: one standard deviation of the feature
SCALE = 3.0  # times wider or narrower than the baseline
IN_A_ROW = 3  # batches; one odd batch is no new distribution
FAR = 2.0  # decades beyond the baseline's largest value (healthy batches stay within 0.5)
MOST = 20


@dataclass(frozen=True)
class Baseline:
    batches: tuple[InputStats, ...] = ()
    shifted: int = 0
    since: int = 0
    told: bool = False
    fars: int = 0


def initial(settings: Settings) -> dict[str, Baseline]:
    return {}


def step(
    state: dict[str, Baseline], record: StepRecord, facts: RunFacts
) -> tuple[dict[str, Baseline], list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    for x in record.inputs:
        if x.nans or x.infs or x.zeros:
            continue
        known = state.get(x.name, Baseline())
        if known.batches and len(known.batches[0].means) != len(x.means):
            continue  # another kind of input under this name
        if len(known.batches) < BASELINE:
            known = replace(known, batches=(*known.batches, x))
        else:
            known, new = compare(known, x, record.step)
            events.extend(new)
        state = {**state, x.name: known}
    return state, events


def compare(known: Baseline, x: InputStats, step: int) -> tuple[Baseline, list[SemanticEvent]]:
    """One batch against the baseline."""
    decades = lg(x.far) - lg(statistics.median(b.far for b in known.batches))
    if decades > FAR:
        if known.fars >= MOST:
            return known, []
        symptom = "input_sentinel" if x.far_repeats > 1 else "input_shift"
        event = observed(
            symptom, step, input=x.name, value=x.far_value, repeats=x.far_repeats, decades=decades, z=None, feature=None
        )
        return replace(known, fars=known.fars + 1), [event]
    z, feature, ratio = furthest(known.batches, x)
    if z < SHIFT and 1 / SCALE < ratio < SCALE:
        return replace(known, shifted=0), []
    since = known.since if known.shifted else step
    known = replace(known, shifted=known.shifted + 1, since=since)
    if known.shifted < IN_A_ROW or known.told:
        return known, []
    event = observed("input_shift", since, input=x.name, feature=feature, z=z, scale=ratio, decades=decades)
    return replace(known, told=True), [event]


def furthest(baseline: tuple[InputStats, ...], x: InputStats) -> tuple[float, int, float]:
    """(largest shift in baseline deviations, its feature, largest change of a feature's spread)."""
    worst, feature, scale = 0.0, 0, 1.0
    for f, mean in enumerate(x.means):
        means = [b.means[f] for b in baseline]
        stds = [b.stds[f] for b in baseline]
        usual, width = statistics.fmean(means), statistics.median(stds)
        noise = statistics.pstdev(means) + 0.02 * width
        away = abs(mean - usual)
        z = away / noise if noise > 0 else (math.inf if away > 0 else 0.0)
        if z > worst and away > SHIFT_STD * width:
            worst, feature = z, f
        if width > 0 and x.rows > 1 and x.stds[f] > 0:
            ratio = x.stds[f] / width
            if abs(lg(ratio)) > abs(lg(scale)) and min(stds) > width / 2 and max(stds) < width * 2:
                scale, feature = ratio, f if worst == 0 else feature
    return worst, feature, scale
