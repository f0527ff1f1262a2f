"""Parameters whose gradient is exactly zero, or never there at all, while it should be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean
from neuraldbg.events import LISTED, SemanticEvent, observed, recovered
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

IN_A_ROW = 5  # steps: a LoRA factor has zero gradient at step 0 only
SHARE = 0.3  # of the trainable tensors; single idle heads or experts are usual
NEVER = -(10**9)  # in the count of one that had a gradient: no number of steps without brings it to IN_A_ROW


@dataclass(frozen=True)
class State:
    zero: Counter[str]
    since: dict[str, int]
    absent: Counter[str]
    absent_since: dict[str, int]
    backwards: int = 0
    zero_told: bool = False
    absent_told: bool = False
    gone: SemanticEvent | None = None


def initial(settings: Settings) -> State:
    return State(Counter(), {}, Counter(), {})


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record) or not record.backwards:
        return state, []
    trainable = [p for p in facts.parameters if p.trainable and p.name in record.parameters]
    zero, absent = Counter(state.zero), Counter(state.absent)
    since, absent_since = dict(state.since), dict(state.absent_since)
    for p in trainable:
        gradient = record.parameters[p.name].gradient
        if gradient == 0.0:
            zero[p.name] += 1
            since.setdefault(p.name, record.step)
        else:
            zero[p.name] = 0
            since.pop(p.name, None)
        absent[p.name] = absent[p.name] + 1 if gradient is None else NEVER
        absent_since.setdefault(p.name, record.step)
    state = replace(
        state, zero=zero, since=since, absent=absent, absent_since=absent_since, backwards=state.backwards + 1
    )
    events: list[SemanticEvent] = []
    if state.gone is not None and any(absent[n] < 0 for n in state.gone.metadata["parameters"]):
        events.append(recovered(state.gone, record.step))  # a player whose turn comes late has its gradient after all
        state = replace(state, gone=None)
    order = {m.name: m.order for m in facts.modules if m.order is not None}
    stuck = [p for p in trainable if zero[p.name] >= IN_A_ROW]
    if not state.zero_told and trainable and len(stuck) >= SHARE * len(trainable):
        last = max(stuck, key=lambda p: order.get(p.module, -1))
        begun = min(since[p.name] for p in stuck)
        names = tuple(p.name for p in stuck[:LISTED])
        share = len(stuck) / len(trainable)
        events.append(observed("zero_gradient", begun, last.module, share=share, parameters=names))
        state = replace(state, zero_told=True)
    cut = {m.name: k - len(facts.modules) for k, m in enumerate(facts.modules) if m.without_grad}
    ran = {**cut, **order}
    gone = [p for p in trainable if absent[p.name] >= IN_A_ROW and p.module in ran]
    if not state.absent_told and gone and len(gone) < len(trainable) and state.backwards >= IN_A_ROW:
        last = max(gone, key=lambda p: ran[p.module])
        share = sum(p.numel for p in gone) / sum(p.numel for p in trainable)
        names = tuple(p.name for p in gone[:LISTED])
        begun = min(absent_since[p.name] for p in gone)
        without = last.module in cut
        event = observed("no_gradient", begun, last.module, share=share, parameters=names, without_grad=without)
        events.append(event)
        state = replace(state, absent_told=True, gone=event)
    return state, events
