"""Which one-level split of the trainings tells those with a cause from those without, and whether it is chance.

The split is a decision stump chosen by information gain (Quinlan 1986; thresholds between neighbouring values, Fayyad
and Irani 1992). The best of many splits looks good by chance too, so its p-value is that of the best split under
permuted labels (Westfall and Young 1993); Fisher's exact test of the split alone stands beside it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neuraldbg.sweep.rows import Row

MOST_CUTS = 128  # thresholds tried a parameter; of more distinct values evenly chosen ones
MOST_KINDS = 20  # of a parameter in words; more are names and paths, which separate everything and mean nothing
WORK = 200_000  # rows times permutations: about a second
FEWEST = 3  # trainings with and without a cause, below which nothing is said
SURE = 0.05
Z = 1.959964  # of a 95 % interval

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Condition:
    """`parameter` is above a threshold (`>`), not above it (`<=`), equal to a value (`is`) or not (`is not`)."""

    parameter: str
    sign: str
    value: str | float | bool

    def __str__(self) -> str:
        shown = f"{self.value:.3g}" if isinstance(self.value, float) else str(self.value)
        return f"{self.parameter} {self.sign} {shown}"


@dataclass(frozen=True)
class Split:
    """Of `inside` trainings that meet the condition `inside_with` have the cause, of `outside` others `outside_with`.

    lift: the share inside over the share in all; low, high: its 95 % interval (Wilson's for the share inside).
    gain: information gain in bits. fisher: exact p-value (two-sided) of this split alone. p: that a split this good
    is found by chance, over all that were tried; None where there are too few trainings.
    """

    condition: Condition
    inside: int
    inside_with: int
    outside: int
    outside_with: int
    lift: float
    low: float
    high: float
    gain: float
    fisher: float
    p: float | None = None


@dataclass(frozen=True)
class Candidates:
    """Splits that could be made of some trainings: trainings x splits; `known` is False where the value is missing."""

    conditions: tuple[tuple[str, str | float | bool, bool], ...]  # parameter, value, whether it is a threshold
    holds: Bools
    known: Bools


def candidates(rows: Sequence[Row], names: Sequence[str]) -> Candidates:
    """All splits by these parameters; a threshold `v` holds where the value is at most `v`."""
    conditions: list[tuple[str, str | float | bool, bool]] = []
    holds: list[Bools] = []
    known: list[Bools] = []
    for name in names:
        values = [row.parameters.get(name) for row in rows]
        there = np.array([v is not None for v in values])
        if is_numeric(values):
            numbers = np.array([math.nan if v is None else float(v) for v in values])
            for cut in thresholds(numbers[there]):
                conditions.append((name, cut, True))
                holds.append(numbers <= cut)
                known.append(there)
        else:
            kinds = sorted({v for v in values if v is not None}, key=str)
            for kind in kinds[:1] if len(kinds) == 2 else kinds:
                conditions.append((name, kind, False))
                holds.append(np.array([v == kind and v is not None for v in values]))
                known.append(there)
    empty = np.zeros((len(rows), 0), dtype=bool)
    return Candidates(tuple(conditions), np.stack(holds, 1) if holds else empty, np.stack(known, 1) if known else empty)


def is_numeric(values: Sequence[object]) -> bool:
    """Whether all that are known are numbers."""
    known = [v for v in values if v is not None]
    return bool(known) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in known)


def thresholds(numbers: Floats) -> Iterator[float]:
    """Between each two neighbouring values: the geometric mean of positive ones (rates lie on a log scale)."""
    distinct = np.unique(numbers[np.isfinite(numbers)])
    pairs = list(itertools.pairwise(distinct))
    if len(pairs) > MOST_CUTS:
        pairs = [pairs[int(k)] for k in np.linspace(0, len(pairs) - 1, MOST_CUTS)]
    for low, high in pairs:
        middle = math.sqrt(low) * math.sqrt(high) if low > 0 else (low + high) / 2
        yield float(middle if low <= middle < high else low)


def unusable(rows: Sequence[Row], name: str) -> str:
    """Why a parameter can separate nothing; "" if it can."""
    known = [v for row in rows if (v := row.parameters.get(name)) is not None]
    distinct = set(known)
    if len(distinct) < 2:
        return "the same in all"
    if not is_numeric(known) and len(distinct) > MOST_KINDS:
        return f"{len(distinct)} different texts"
    return ""


def _entropy(share: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = share * np.log2(share) + (1 - share) * np.log2(1 - share)
    return -np.nan_to_num(terms)


def gains(labels: Floats, tried: Candidates) -> Floats:
    """Information gain in bits of each split, for each row of `labels` (labellings x trainings, 0 or 1)."""
    known = tried.known.astype(np.float64)
    holds = (tried.holds & tried.known).astype(np.float64)
    n, n_in = known.sum(0), holds.sum(0)
    k, k_in = labels @ known, labels @ holds
    n_out, k_out = n - n_in, k - k_in
    with np.errstate(divide="ignore", invalid="ignore"):
        after = n_in / n * _entropy(k_in / n_in) + n_out / n * _entropy(k_out / n_out)
        gain = np.where((n_in > 0) & (n_out > 0), _entropy(k / n) - np.nan_to_num(after), 0.0)
    weighted: Floats = gain * n / labels.shape[1]  # a parameter that few trainings have is worth less
    return weighted


def best_splits(has: Bools, tried: Candidates) -> list[Split]:
    """The best split of each parameter, best first; `p` is None where there are too few trainings to say.

    Of several parameters that part the trainings alike (the depth, the number of weights) the first one is kept.
    """
    if not tried.conditions or not has.any():
        return []
    gain = gains(has[None].astype(np.float64), tried)[0]
    best: dict[str, int] = {}
    for k, (name, _, _) in enumerate(tried.conditions):
        if name not in best or gain[k] > gain[best[name]] + 1e-12:
            best[name] = k
    enough = min(int(has.sum()), int((~has).sum())) >= FEWEST
    chance = permuted(has, tried) if enough else np.zeros(0)
    different = {_parting(tried, k): k for k in reversed(best.values())}  # the first of those that part alike stays
    out = [_split(has, tried, k, float(gain[k]), chance) for k in sorted(different.values())]
    return sorted(out, key=lambda s: -s.gain)


def _parting(tried: Candidates, k: int) -> bytes:
    """What two splits share that part the same trainings, whichever side is called inside."""
    holds, known = tried.holds[:, k] & tried.known[:, k], tried.known[:, k]
    sides = (holds.tobytes(), (known & ~holds).tobytes())
    return min(sides) + max(sides)


def permuted(has: Bools, tried: Candidates) -> Floats:
    """The gain of the best split under permuted labels, once a permutation; the same at each call."""
    random = np.random.default_rng(0)
    turns = max(39, min(999, WORK // len(has)))  # 39: the fewest with which 0.025 can be told
    found = [
        gains(random.permuted(np.tile(has.astype(np.float64), (part, 1)), axis=1), tried).max(1)
        for part in _parts(turns, 40)
    ]
    return np.concatenate(found)


def _parts(total: int, most: int) -> Iterator[int]:
    while total > 0:
        yield min(total, most)
        total -= most


def _split(has: Bools, tried: Candidates, k: int, gain: float, chance: Floats) -> Split:
    name, value, is_threshold = tried.conditions[k]
    known, holds = tried.known[:, k], tried.holds[:, k] & tried.known[:, k]
    counts = [(int(side.sum()), int((side & has).sum())) for side in (holds, known & ~holds)]
    signs = ("<=", ">") if is_threshold else ("is", "is not")
    more = 0 if _share(*counts[0]) >= _share(*counts[1]) else 1
    (n_in, k_in), (n_out, k_out) = counts[more], counts[1 - more]
    base = (k_in + k_out) / (n_in + n_out)
    low, high = wilson(k_in, n_in)
    return Split(
        condition=Condition(name, signs[more], value),
        inside=n_in,
        inside_with=k_in,
        outside=n_out,
        outside_with=k_out,
        lift=_share(n_in, k_in) / base if base else 0.0,
        low=low / base if base else 0.0,
        high=high / base if base else 0.0,
        gain=gain,
        fisher=fisher(k_in, n_in - k_in, k_out, n_out - k_out),
        p=float((1 + (chance >= gain - 1e-12).sum()) / (1 + len(chance))) if len(chance) else None,
    )


def _share(n: int, k: int) -> float:
    return k / n if n else 0.0


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson 1927); (0, 1) of nothing."""
    if not n:
        return 0.0, 1.0
    share, z2 = k / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Two-sided p-value of Fisher's exact test of the table ((a, b), (c, d)): tables no likelier than this one."""
    rows, columns, n = a + b, a + c, a + b + c + d

    def log_probability(x: int) -> float:
        return _choose(columns, x) + _choose(n - columns, rows - x) - _choose(n, rows)

    seen = log_probability(a)
    low, high = max(0, rows - (n - columns)), min(rows, columns)
    likely = (log_probability(x) for x in range(low, high + 1))
    return min(1.0, math.fsum(math.exp(p) for p in likely if p <= seen + 1e-7))  # equal ones differ by rounding


def _choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
