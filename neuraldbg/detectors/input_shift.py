"""The inputs leave what they were: a shift of a feature, or values decades further out than before."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from neuraldbg.detectors._common import batch_of, lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import InputStats, RunFacts, StepRecord
from neuraldbg.settings import Settings

BASELINE = 15  # batches that say what is normal
SHIFT = 15.0  # healthy runs reach 11; a mean that moves by this is no sampling noise
SHIFT_STD = 1.0  # and it must matter: one standard deviation of the feature, or of a usual one where it was constant
SCALE = 3.0  # times wider or narrower than the baseline, whose own spreads stay within twofold
SAMPLES = 8  # of a batch: the spread of fewer is a number that changes threefold by chance
IN_A_ROW = 3  # batches; one odd batch is no new distribution
FAR = 2.0  # decades beyond the baseline's largest value (healthy batches stay within 0.5)
MOST = 20  # far values that are told; later ones say nothing new
NOISE = 0.02  # of the feature's spread: the floor under the noise of a baseline that happens to be smooth
TINY = 1e-30  # no division by zero

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Normal:
    """What the baseline says, per feature: mean, noise of the batch means, spread, and whether the spread is steady.

    matters: how far the mean must move to matter; a feature that was constant so far (a rare category, the border of an
    image) has no spread of its own, and its first other value is no shift.
    """

    mean: Numbers
    noise: Numbers
    width: Numbers
    steady: NDArray[np.bool_]
    matters: Numbers
    far_lg: float


@dataclass(frozen=True)
class Baseline:
    batches: tuple[InputStats, ...] = ()
    normal: Normal | None = None
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
        if x.nans or x.infs or x.zeros or not x.means:
            continue
        known = state.get(x.name, Baseline())
        if known.normal is not None:
            if len(known.normal.mean) != len(x.means):
                continue  # another kind of input under this name
            known, new = compare(known, known.normal, x, record)
            events.extend(new)
        elif not known.batches or len(known.batches[0].means) == len(x.means):
            known = learn(known, x)
        state = {**state, x.name: known}
    return state, events


def finite(x: InputStats) -> bool:
    """Whether its moments are numbers: squares of finite values can overflow."""
    return math.isfinite(sum(x.means) + sum(x.stds))


def learn(known: Baseline, x: InputStats) -> Baseline:
    """One more batch of the baseline; the last one makes the summary and lets the batches go."""
    if not finite(x):
        return known
    batches = (*known.batches, x)
    if len(batches) < BASELINE:
        return replace(known, batches=batches)
    means, stds = (np.array([getattr(b, k) for b in batches]) for k in ("means", "stds"))
    width = np.median(stds, axis=0)
    steady = (width > 0) & (stds.min(0) > width / 2) & (stds.max(0) < width * 2)
    far = lg(statistics.median(b.far for b in batches))
    noise = means.std(0) + NOISE * width
    usual = float(np.median(width[width > 0])) if (width > 0).any() else 0.0
    matters = SHIFT_STD * np.where(width > 0, width, usual)
    return replace(known, batches=(), normal=Normal(means.mean(0), noise, width, steady, matters, far))


def compare(known: Baseline, normal: Normal, x: InputStats, record: StepRecord) -> tuple[Baseline, list[SemanticEvent]]:
    """One batch against the baseline."""
    decades = lg(x.far) - normal.far_lg
    if decades > FAR:
        if known.fars >= MOST:
            return known, []
        symptom = "input_sentinel" if x.far_repeats > 1 else "input_shift"
        event = observed(
            symptom,
            record.step,
            input=x.name,
            value=x.far_value,
            repeats=x.far_repeats,
            decades=decades,
            z=None,
            feature=furthest_out(normal, x),
            **batch_of(record, x),
        )
        return replace(known, fars=known.fars + 1), [event]
    if not finite(x):
        return known, []
    z, feature, ratio = furthest(normal, x)
    if z < SHIFT and 1 / SCALE < ratio < SCALE:
        return replace(known, shifted=0), []
    since = known.since if known.shifted else record.step
    known = replace(known, shifted=known.shifted + 1, since=since)
    if known.shifted < IN_A_ROW or known.told:
        return known, []
    spreads = float((np.abs(np.array(x.means) - normal.mean) / np.maximum(normal.matters, TINY)).max())
    event = observed(
        "input_shift", since, input=x.name, feature=feature, z=z, scale=ratio, decades=decades, spreads=spreads
    )
    return replace(known, told=True), [event]


def furthest_out(normal: Normal, x: InputStats) -> int | None:
    """The feature whose size grew most over its own baseline, where features are told apart one by one."""
    if len(x.rms) < 2 or not all(map(math.isfinite, x.rms)):
        return None
    return int((np.array(x.rms) / np.maximum(np.hypot(normal.mean, normal.width), TINY)).argmax())


def furthest(normal: Normal, x: InputStats) -> tuple[float, int, float]:
    """(largest shift in baseline deviations, its feature, largest change of a feature's spread)."""
    away = np.abs(np.array(x.means) - normal.mean)
    z = np.where(away > normal.matters, away / np.maximum(normal.noise, TINY), 0.0)
    feature = int(z.argmax())
    stds = np.array(x.stds)
    ratio = np.where(normal.steady & (stds > 0), stds / np.maximum(normal.width, TINY), 1.0)
    scale = int(np.abs(np.log(ratio)).argmax()) if x.rows >= SAMPLES else None
    if scale is None:
        return float(z[feature]), feature, 1.0
    return float(z[feature]), feature if z[feature] > 0 else scale, float(ratio[scale])
