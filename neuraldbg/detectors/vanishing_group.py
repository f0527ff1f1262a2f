"""The gradient of one optimizer's parameters dies away though another network judges them: one player has won."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg, previous_layer
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

HEAD, TAIL = 3, 10  # samples: the largest of the first against the median of the last
DIES_LG = -2.2  # healthy training converges by up to 1.6 decades
BEGINS_LG = -1.0  # where the fall is dated from


@dataclass(frozen=True)
class Group:
    head: tuple[float, ...] = ()
    tail: tuple[float, ...] = ()
    since: int | None = None


@dataclass(frozen=True)
class State:
    groups: tuple[Group, ...] = ()
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.sampled or state.told or len(record.group_gradients) < 2:
        return state, []
    groups = list(state.groups) + [Group()] * (len(record.group_gradients) - len(state.groups))
    for k, value in enumerate(record.group_gradients):
        if value is not None and math.isfinite(value):
            groups[k] = follow(groups[k], value, record.step)
    falls = [fall(g) for g in groups]
    state = replace(state, groups=tuple(groups))
    dying = [k for k, f in enumerate(falls) if f < DIES_LG and not _holds_output(facts, k)]
    if not dying:
        return state, []
    k = min(dying, key=lambda k: falls[k])
    others = max(f for j, f in enumerate(falls) if j != k)
    event = observed(
        "vanishing_group", groups[k].since or 0, group=k, decay_lg=falls[k], others_lg=others, module=_member(facts, k)
    )
    return replace(state, told=True), [event]


def _holds_output(facts: RunFacts, k: int) -> bool:
    """Whether this optimizer trains the layer that ends in the loss: its gradient may die by fitting well."""
    last = {m.name for m in facts.modules if m.position == "output"}
    owned = {p.module for p in facts.parameters if p.owner == k}
    return bool(last & owned) or any(previous_layer(facts, n) in owned for n in last)


def follow(g: Group, value: float, step: int) -> Group:
    if len(g.head) < HEAD:
        return replace(g, head=(*g.head, value))
    usual = max(g.head)
    fallen = lg(value) - lg(usual) < BEGINS_LG
    since = (step if g.since is None else g.since) if fallen else None
    return replace(g, tail=(*g.tail, value)[-TAIL:], since=since)


def fall(g: Group) -> float:
    usual, now = median(g.head), median(g.tail)
    return lg(now) - lg(usual) if usual and now is not None and len(g.tail) == TAIL else 0.0


def _member(facts: RunFacts, k: int) -> str | None:
    """The first module whose parameters this optimizer holds."""
    return next((p.module for p in facts.parameters if p.owner == k), None)
