"""Parameters that had a gradient and get none any more, though their module runs and their optimizer steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean
from neuraldbg.events import LISTED, SemanticEvent, observed, recovered
from neuraldbg.record import ParameterFacts, RunFacts, StepRecord
from neuraldbg.settings import Settings

IN_A_ROW = 10  # samples: layers that are dropped at random, or tasks that take turns, come back sooner


@dataclass(frozen=True)
class State:
    had: frozenset[str] = frozenset()
    without: Counter[str] | None = None
    since: dict[str, int] | None = None
    told: SemanticEvent | None = None
    done: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or not record.backwards or not record.stepped or state.done:
        return state, []
    known = [p for p in facts.parameters if p.trainable and p.owner is not None and p.name in record.parameters]
    got = {p.name for p in known if record.parameters[p.name].gradient is not None}
    used = {p.owner for p in known if p.name in got}  # a player whose turn it is not has no gradient at all
    without, since = Counter(state.without or {}), dict(state.since or {})
    for p in known:
        if p.name in got or p.owner not in used or p.module not in record.layers:
            without[p.name] = 0
            since.pop(p.name, None)
        elif p.name in state.had:
            without[p.name] += 1
            since.setdefault(p.name, record.step)
    state = replace(state, had=state.had | got, without=without, since=since)
    if state.told is not None:
        if got & set(state.told.metadata["parameters"]):
            return replace(state, done=True), [recovered(state.told, record.step)]
        return state, []
    lost = [p for p in known if without[p.name] >= IN_A_ROW]
    if not lost:
        return state, []
    event = _event(lost, known, since, facts)
    return replace(state, told=event), [event]


def _event(
    lost: list[ParameterFacts], known: list[ParameterFacts], since: dict[str, int], facts: RunFacts
) -> SemanticEvent:
    order = {m.name: m.order for m in facts.modules if m.order is not None}
    last = max(lost, key=lambda p: order.get(p.module, -1))
    return observed(
        "lost_gradient",
        min(since[p.name] for p in lost),
        last.module,
        share=sum(p.numel for p in lost) / sum(p.numel for p in known),
        parameters=tuple(p.name for p in lost[:LISTED]),
    )
