"""The output no longer depends on the sample: collapse of the representation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, in_order, lg
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

SPREAD = 1e-4  # std over samples / rms: failing -4.4 to exactly constant, healthy nets above 10^-1.9
FROM = 10  # steps after which it counts: zero-initialised branches are constant at first and healthy
TIMES = 3  # samples in a row: one batch may hold the same sample over and over


@dataclass(frozen=True)
class State:
    hits: int = 0
    since: int | None = None
    told: bool = False


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """Looks at the whole net: only an output that is constant counts, the layer is the lowest constant one."""
    if not clean(record) or state.told:
        return state, []
    ran = [
        (m, s)
        for m in in_order(facts)
        if not m.has_children and (s := record.layers.get(m.name)) is not None and s.spread is not None
    ]
    outputs = [s for m, s in ran if m.position == "output"] or [s for _, s in ran[-1:]]
    constant = [(m, s) for m, s in ran if s.spread is not None and s.spread < SPREAD]
    if not constant or not any(s.spread is not None and s.spread <= SPREAD for s in outputs):
        return State(), []
    state = replace(state, hits=state.hits + 1, since=record.step if state.since is None else state.since)
    if state.hits < TIMES or record.step < FROM:
        return state, []
    m, s = constant[0]
    event = observed(
        "constant_output",
        state.since or 0,
        m.name,
        spread_lg=max(-20.0, lg(s.spread)),
        position=m.position,
        layers=len(constant),
        at_start=state.since == 0,
    )
    return replace(state, told=True), [event]
