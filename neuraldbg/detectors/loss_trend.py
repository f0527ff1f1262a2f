"""Where the loss goes over the whole run: stuck, swinging, growing, or falling far too slowly."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass

from neuraldbg.detectors._common import lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings
from neuraldbg.trace import skill_of

STEPS = 30  # fewer say nothing about a trend
POINTS = 2000  # kept; then every other one between the first and the last goes
CHANCE = 0.9  # of the loss of a constant prediction: nothing about the inputs has been learned
FALLING = 0.97  # the last tenth against the middle: a loss that still falls is not stuck
LONG = 100  # steps without once being below chance: falling towards chance from above is no learning either
STUCK = 0.95  # tail over head where chance is unknown
GROWN = 10.0  # times the best level
FLIPS, SWING = 0.6, 0.5  # share of sign changes of the detrended loss, and its deviation over its median
SLOW_STEPS = 100  # fewer are merely early
SLOW_LEFT = 0.3  # of the first loss is left after the whole run
SLOW_MONOTONE = 0.98  # of the steps went down: no noise, no overshoot, only small steps


@dataclass(frozen=True)
class State:
    losses: list[tuple[int, float]]
    skills: list[tuple[int, float]]
    cosines: list[float]


def initial(settings: Settings) -> State:
    return State([], [], [])


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """Only collects (in place: copying two thousand numbers a step would be the cost of this detector)."""
    if record.loss is not None and math.isfinite(record.loss):
        _append(state.losses, (record.step, record.loss))
    skill = skill_of(record.loss_stats)
    if skill is not None and math.isfinite(skill):
        _append(state.skills, (record.step, skill))
    if record.cosine is not None and len(state.cosines) < POINTS:
        state.cosines.append(record.cosine)
    return state, []


def _append(points: list[tuple[int, float]], point: tuple[int, float]) -> None:
    points.append(point)
    if len(points) > POINTS:
        points[STEPS : -2 * STEPS] = points[STEPS : -2 * STEPS : 2]


def finish(state: State, facts: RunFacts) -> list[SemanticEvent]:
    """The verdict on the trend so far."""
    losses = [v for _, v in state.losses]
    if len(losses) < STEPS:
        return []
    found = slow(state) or diverging(state) or plateau(state)
    swinging = oscillating(state)
    return [e for e in (found, swinging) if e is not None]


def _levels(points: list[tuple[int, float]]) -> tuple[float, float, float]:
    """(head, middle, tail): medians of the first few, of the second third, of the last twenty."""
    values = [v for _, v in points]
    n = len(values)
    head = statistics.median(values[: max(3, min(10, n // 20))])
    return head, statistics.median(values[n // 3 : 2 * n // 3]), statistics.median(values[-min(20, n // 3) :])


def plateau(state: State) -> SemanticEvent | None:
    """Not falling and above chance; where chance is unknown, not falling at all."""
    head, middle, tail = _levels(state.losses)
    skill = None
    if len(state.skills) >= STEPS // 2:
        skill_head, skill_middle, skill = _levels(state.skills)
        never = len(state.skills) >= LONG and min(_blocks(state.skills)) >= CHANCE
        if skill < CHANCE or (skill_middle > 0 and skill < FALLING * skill_middle and not never):
            return None
        tail_head = skill / skill_head if skill_head > 0 else None
    else:
        if head <= 0 or tail < STUCK * head or tail < FALLING * middle:
            return None
        tail_head = tail / head
    since = _stuck_since(state.skills if skill is not None else state.losses)
    return observed("loss_plateau", since, skill=skill, tail_head=tail_head, since=since)


def _blocks(points: list[tuple[int, float]]) -> list[float]:
    """Medians of about twenty blocks."""
    values = [v for _, v in points]
    size = max(5, len(values) // 20)
    return [statistics.median(values[k : k + size]) for k in range(0, len(values) - size + 1, size)]


def _stuck_since(points: list[tuple[int, float]]) -> int:
    """The first step from which on the level stays within 10 % of where it ends."""
    n = len(points)
    block = max(5, n // 12)
    end = statistics.median(v for _, v in points[-block:])
    since = points[0][0]
    for k in range(0, n - block, block):
        if statistics.median(v for _, v in points[k : k + block]) > 1.1 * end:
            since = points[min(k + block, n - 1)][0]
    return since


def diverging(state: State) -> SemanticEvent | None:
    """The loss ends far above its best level and above chance."""
    values = [v for _, v in state.losses]
    best = min(_blocks(state.losses))
    tail = statistics.median(values[-5:])
    skill = statistics.median(v for _, v in state.skills[-5:]) if len(state.skills) >= STEPS // 2 else None
    if best <= 0 or tail < GROWN * best or (skill is not None and skill < 1.5):
        return None
    if skill is None and tail < 2 * statistics.median(values[:5]):
        return None
    low = values.index(min(values))
    since = next(
        (s for k, (s, v) in enumerate(state.losses) if k > low and min(values[k:]) > 2 * best), state.losses[-1][0]
    )
    return observed("loss_diverging", since, growth_lg=lg(tail) - lg(best), skill=skill)


def oscillating(state: State) -> SemanticEvent | None:
    values = [v for _, v in state.losses][-200:]
    if len(values) < 40:
        return None
    trend = [statistics.median(values[max(0, k - 5) : k + 6]) for k in range(len(values))]
    rest = [v - t for v, t in zip(values, trend, strict=True)]
    flips = sum(a * b < 0 for a, b in itertools.pairwise(rest)) / (len(rest) - 1)
    level = abs(statistics.median(values))
    swing = statistics.pstdev(rest) / level if level else 0.0
    third = len(values) // 3
    falling = _level(values[-20:]) < 0.9 * _level(values[third : 2 * third])
    if flips < FLIPS or swing < SWING or falling:
        return None
    return observed("loss_oscillating", state.losses[-len(values)][0], flips=flips, swing=swing)


def _level(values: list[float]) -> float:
    """The median over means of five: of a loss that alternates between two levels the plain median is either one."""
    return statistics.median(statistics.fmean(values[k : k + 5]) for k in range(0, len(values) - 4, 5))


def slow(state: State) -> SemanticEvent | None:
    """Falling at nearly every step, in one direction, and still near where it began."""
    values = [v for _, v in state.losses]
    head, _, tail = _levels(state.losses)
    if len(values) < SLOW_STEPS or head <= 0 or not SLOW_LEFT < tail / head < 1:
        return None
    monotone = sum(b < a for a, b in itertools.pairwise(values)) / (len(values) - 1)
    cosine = statistics.median(state.cosines) if state.cosines else None
    if monotone < SLOW_MONOTONE or (cosine is not None and cosine < 0.9):
        return None
    return observed("slow_progress", state.losses[0][0], tail_head=tail / head, monotone=monotone, cosine=cosine)
