"""What is right about a diagnosis of a labelled run, and the figures made of many of them: plain values only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SLACK = 2  # steps by which an onset may miss its window
BINS = 10  # of confidence, in the reliability diagram and the calibration error


@dataclass(frozen=True)
class Answer:
    """One hypothesis as it was said."""

    cause: str
    failure: str
    layer: str | None
    step: int
    confidence: float
    score: float = 0.0


@dataclass(frozen=True)
class Row:
    """One graded run. causes, failures, layers and onset are the label's; empty causes: healthy."""

    name: str
    split: str
    kind: str
    causes: tuple[str, ...]
    failures: tuple[str, ...]
    layers: tuple[str, ...]
    onset: tuple[int, int] | None
    verdict: str
    answers: tuple[Answer, ...]
    late: bool = False
    error: str | None = None
    events: tuple[str, ...] = ()
    hurts: tuple[str, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        return not self.causes

    @property
    def top(self) -> Answer | None:
        return self.answers[0] if self.verdict == "failed" and self.answers else None

    @property
    def alarm(self) -> bool:
        """A healthy run that is called failed, has a hypothesis, or was broken by watching."""
        return self.healthy and (self.verdict == "failed" or bool(self.answers) or self.error is not None)

    @property
    def detected(self) -> bool:
        return self.top is not None

    def cause(self, among: int = 1) -> bool:
        return self.detected and any(a.cause in self.causes for a in self.answers[:among])

    def layer(self, among: int = 1) -> bool:
        return self.detected and any(a.layer in self.layers for a in self.answers[:among])

    @property
    def failure(self) -> bool:
        return self.top is not None and self.top.failure in self.failures

    @property
    def onset_error(self) -> int | None:
        """Steps between the said onset and the window of right ones, 0 inside it; None without an answer."""
        if self.top is None or self.onset is None:
            return None
        return max(self.onset[0] - self.top.step, self.top.step - self.onset[1], 0)

    @property
    def onset_right(self) -> bool:
        return self.onset_error is not None and self.onset_error <= SLACK

    @property
    def wrong(self) -> list[str]:
        if self.healthy:
            return ["false_alarm"] if self.alarm else []
        if not self.detected:
            return ["missed"]
        checks = {
            "cause": self.cause(),
            "failure": self.failure,
            "layer": self.layer() or not self.layers,
            "onset": self.onset_right or self.onset is None,
        }
        return [name for name, right in checks.items() if not right]


@dataclass(frozen=True)
class Share:
    """So many of so many, with the exact (Clopper-Pearson) interval of 95 %."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        k, n = self.hits, self.of
        low = 0.0 if k == 0 else _solve(lambda p: 1 - _cdf(k - 1, n, p) - 0.025)
        high = 1.0 if k == n else _solve(lambda p: 0.025 - _cdf(k, n, p))
        return low, high

    def __str__(self) -> str:
        if not self.of:
            return "-"
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({self.hits} of {self.of}; {100 * low:.1f} to {100 * high:.1f} %)"


def _cdf(k: int, n: int, p: float) -> float:
    """Of the binomial distribution."""
    if p <= 0 or p >= 1:
        return 1.0 if p <= 0 or k >= n else 0.0
    logs = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )
    return min(1.0, sum(math.exp(v) for v in logs))


def _solve(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def share(rows: Iterable[Row], right: Callable[[Row], bool]) -> Share:
    values = [right(r) for r in rows]
    return Share(sum(values), len(values))


def scores(rows: Sequence[Row]) -> dict[str, Share]:
    """The figures of a set of runs. Causes, layers and onsets count a missed failure as wrong."""
    faulty = [r for r in rows if not r.healthy]
    placed = [r for r in faulty if r.layers]
    return {
        "detection": share(faulty, lambda r: r.detected),
        "cause, first": share(faulty, lambda r: r.cause()),
        "cause, first three": share(faulty, lambda r: r.cause(3)),
        "failure type": share(faulty, lambda r: r.failure),
        "layer, first": share(placed, lambda r: r.layer()),
        "layer, first three": share(placed, lambda r: r.layer(3)),
        "onset": share(faulty, lambda r: r.onset_right),
        "onset, late faults": share([r for r in faulty if r.late], lambda r: r.onset_right),
        "false alarms": share([r for r in rows if r.healthy], lambda r: r.alarm),
        "errors": share(rows, lambda r: r.error is not None),
    }


def claims(rows: Iterable[Row]) -> list[tuple[float, bool]]:
    """(confidence, whether the cause is right) of each first hypothesis; one on a healthy run is wrong."""
    return [(r.top.confidence, r.cause()) for r in rows if r.top is not None]


@dataclass(frozen=True)
class Bin:
    """One tenth of the confidences: their mean, how often the cause was right, and of how many runs."""

    said: float
    right: float
    count: int


def bins(rows: Sequence[Row]) -> list[Bin]:
    """Reliability: in each tenth of the confidence, what was said and how often it was right."""
    out = []
    for k in range(BINS):
        found = [c for c in claims(rows) if k / BINS <= c[0] < (k + 1) / BINS or (k == BINS - 1 and c[0] == 1)]
        if found:
            n = len(found)
            out.append(Bin(sum(c for c, _ in found) / n, sum(r for _, r in found) / n, n))
    return out


def calibration_error(rows: Sequence[Row]) -> float:
    """Expected calibration error."""
    found = bins(rows)
    total = sum(b.count for b in found)
    return sum(b.count * abs(b.said - b.right) for b in found) / total if total else math.nan


def as_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "wrong": row.wrong}


def from_json(data: Mapping[str, Any]) -> Row:
    """What `as_json` gave, also after a round through a file."""
    kept = {k: v for k, v in data.items() if k not in ("wrong", "answers")}
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return Row(**plain, answers=tuple(Answer(**a) for a in data["answers"]))
