"""Gradient clipping that reaches some parameters of an optimizer and leaves others as they are. An exact fact.

A clip by norm shows in two numbers: it multiplies all that it reaches by one factor, and what it leaves has the same
norm each time. A factor that stays the same is a scale, chosen on purpose; factors that differ are a clip by value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from neuraldbg.detectors._common import clean, lg
from neuraldbg.events import LISTED, SemanticEvent, observed, recovered
from neuraldbg.record import ParameterFacts, ParameterStats, RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

ALIKE = 1.02  # factors of one clip are equal; the norm of a bfloat16 gradient is rounded to half a percent
BINDS = 0.9  # a factor above it changes little; a clip that never binds multiplies by one
SAME = 1e-3  # of a gradient that nothing has scaled: it differs from itself by rounding alone
STEADY = 1.01  # what a clip leaves is its limit, but for the 1e-6 that PyTorch adds to the norm
HITS = 3  # samples in which it binds; two may agree by chance
KEPT = 8  # samples that are remembered: enough for a limit and factors to show
VIOLENT = 0.2  # rms(dw) / rms(w), as in violent_update; healthy is
CALM = 0.1  # at most: what the clip would have made of it, or else the rate is too high for that too
ELEMENTS = 16  # smaller tensors jump at random
AGAIN = 20  # steps after which another throw is news
MOST = 5  # throws that are told; more say nothing new

Pairs = Sequence[tuple[ParameterFacts, ParameterStats]]


@dataclass(frozen=True)
class Hit:
    """One sample in which a clip bound on a part.

    limit: the norm that it left; factor: what it multiplied by. thrown: the part outside was moved by the size of its
    own weights, as it would not have been with the factor of one clip over all.
    """

    step: int
    limit: float
    factor: float
    thrown: bool
    outside: frozenset[str]


@dataclass(frozen=True)
class State:
    hits: Mapping[int, tuple[Hit, ...]] = field(default_factory=dict)  # by optimizer
    least: Mapping[int, int] = field(default_factory=dict)  # writes to a gradient that no clip reached, by optimizer
    reached: frozenset[str] = frozenset()  # by a clip of their own, now and then
    told: Mapping[int, SemanticEvent] = field(default_factory=dict)
    thrown: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # steps, by optimizer


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or not record.stepped or record.skipped:
        return state, []
    if not state.least and all(s.used is None for s in record.parameters.values()):
        return state, []  # nearly all trainings
    events: list[SemanticEvent] = []
    owners: dict[int, list[tuple[ParameterFacts, ParameterStats]]] = {}
    for p in facts.parameters:
        s = record.parameters.get(p.name)
        if p.owner is not None and s is not None and s.gradient:
            owners.setdefault(p.owner, []).append((p, s))
    for owner, held in owners.items():
        state, found = _one(state, owner, held, record)
        events += found
    return state, events


def _one(state: State, owner: int, held: Pairs, record: StepRecord) -> tuple[State, list[SemanticEvent]]:
    all_of_them, held = held, [(p, s) for p, s in held if s.used is not None]
    least = min((s.writes for _, s in held), default=state.least.get(owner))
    if least is None:
        return state, []
    reached = state.reached | {p.name for p, s in all_of_them if s.writes > least}
    state = replace(state, reached=reached, least={**state.least, owner: least})
    told = state.told.get(owner)
    if told is not None and set(told.metadata["parameters"]) <= reached:
        rest = {k: e for k, e in state.told.items() if k != owner}
        return replace(state, told=rest, hits={**state.hits, owner: ()}), [recovered(told, record.step)]
    inside = [(p, s) for p, s in held if s.writes > least]
    outside = [(p, s) for p, s in held if s.writes == least and p.name not in reached]
    hit = _hit(inside, outside, record.step)
    if hit is None:
        return state, []
    before = state.hits.get(owner, ())
    if before and not 1 / STEADY < hit.limit / before[-1].limit < STEADY:
        before = ()  # another limit, or no clip by norm
    hits = (*before, hit)[-KEPT:]
    state = replace(state, hits={**state.hits, owner: hits})
    always = frozenset.intersection(*(h.outside for h in hits))
    left = [(p, s) for p, s in outside if p.name in always]
    factors = [h.factor for h in hits]
    if len(hits) < HITS or not left or max(factors) < ALIKE * min(factors):
        return state, []
    known = state.thrown.get(owner, ())
    throws = [h.step for h in hits if h.thrown and h.step - max(known, default=-AGAIN) >= AGAIN][: MOST - len(known)]
    if told is not None and not throws:
        return state, []
    since = hits[0].step if told is None else record.step
    event = _event(left, inside, held, hits[-1], since, throws[0] if throws else None)
    known = (*known, *throws[:1])
    return replace(state, told={**state.told, owner: told or event}, thrown={**state.thrown, owner: known}), [event]


def _hit(inside: Pairs, outside: Pairs, at: int) -> Hit | None:
    """What bound in this sample: one factor inside, nothing done outside although more than the limit is there."""
    factors = [(s.used or 0.0) / (s.gradient or math.inf) for _, s in inside]
    if not factors or not outside or not 0 < min(factors) <= max(factors) < BINDS:
        return None
    if max(factors) > ALIKE * min(factors) or not all(_untouched(s) for _, s in outside):
        return None
    limit, rest, factor = _norm(inside), _norm(outside), median(factors) or 0.0
    if not 0 < limit < rest < math.inf:
        return None
    far, common = _update(outside) or 0.0, limit / math.hypot(limit / factor, rest)
    thrown = far > VIOLENT and far * common < CALM
    return Hit(at, limit, factor, thrown, frozenset(p.name for p, _ in outside))


def _untouched(s: ParameterStats) -> bool:
    return abs((s.used or 0.0) / (s.gradient or math.inf) - 1) < SAME


def _norm(pairs: Pairs) -> float:
    """Of the gradients as the optimizer took them."""
    return math.sqrt(sum((s.used or 0.0) ** 2 * p.numel for p, s in pairs))


def _update(pairs: Pairs) -> float | None:
    return median([s.update for p, s in pairs if p.numel >= ELEMENTS and p.rms and s.update is not None])


def _event(left: Pairs, inside: Pairs, held: Pairs, hit: Hit, since: int, thrown: int | None) -> SemanticEvent:
    most = max(left, key=lambda pair: (pair[1].used or 0.0) ** 2 * pair[0].numel)
    far, near = _update(left), _update(inside)
    return observed(
        "unclipped_gradient",
        since,
        most[0].module,
        share=sum(p.numel for p, _ in left) / sum(p.numel for p, _ in held),
        limit=hit.limit,
        norm=_norm(left),
        update_lg=None if far is None else lg(far),
        clipped_update_lg=None if near is None else lg(near),
        factor=hit.factor,
        parameters=tuple(p.name for p, _ in left[:LISTED]),
        thrown=thrown,
    )
