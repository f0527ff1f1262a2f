"""Parameters that get gradient but do not move, and optimizers that hold nothing that can move. Exact facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from neuraldbg.events import LISTED, SemanticEvent, observed
from neuraldbg.record import ParameterFacts, ParameterStats, RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

STEPS = 8  # optimizer steps with gradient and without any change
STOPPED = 5  # samples in which nothing at all moves: accumulation and a scaler's search pause for fewer
NOTHING = 3  # samples in which an optimizer holds nothing trainable: a loop may thaw layers after its first
WEAK = 1e-3  # of the median gradient: below it an update may be lost to rounding, which is a vanishing gradient
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}  # in half formats the loss of updates is a finding of its own
ROUNDED = 16  # times the rounding of a weight: a step that large is not lost to it
RESTING = 16  # steps of a parameter that moved before: it may rest for a few
FEW = 16  # elements; of more than these not all stand at a limit to the bit
MANUAL = 16  # steps of a loop without an optimizer: it may update only now and then


@dataclass(frozen=True)
class State:
    still: Counter[str]
    moved: frozenset[str] = frozenset()
    first: int | None = None
    stopped: int = 0
    stopped_since: int = 0
    nothing: int = 0
    nothing_since: int = 0
    told: frozenset[str] = frozenset()
    since: dict[str, int] | None = None


def initial(settings: Settings) -> State:
    return State(Counter())


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    updating = record.stepped or facts.manual_optimizer
    if not record.sampled or not updating or record.skipped or record.first_bad is not None:
        return state, []
    rated = not record.rates or max(record.rates) > 0
    state, events = _nothing_trains(state, record, facts)
    given = [
        (p, s)
        for p in facts.parameters
        if p.trainable and (s := record.parameters.get(p.name)) is not None and s.moved is not None
    ]
    usual = median([s.gradient for _, s in given if s.gradient]) or 0.0
    pushed = [(p, s) for p, s in given if s.gradient and s.gradient > WEAK * usual and not _lost(p, s, record, facts)]
    if not rated or not pushed:
        return state, events
    still, since = Counter(state.still), dict(state.since or {})
    for p, s in given:
        still[p.name] = 0 if s.moved else still[p.name] + (s.gradient is not None and s.gradient > WEAK * usual)
        since[p.name] = since.get(p.name, record.step) if still[p.name] else record.step + 1
    now = frozenset(p.name for p, s in given if s.moved)
    first = record.step if state.first is None else state.first
    state = replace(state, still=still, moved=state.moved | now, first=first, since=since)
    needed = STEPS if record.stepped else MANUAL
    stuck = [p for p, _ in pushed if still[p.name] >= needed and p.name not in state.moved]
    if not stuck:
        stuck = [p for p, s in pushed if still[p.name] >= RESTING and _left_behind(p, s, record, facts, now)]
        first = min((since[p.name] for p in stuck), default=first)
    if stuck and now and "stuck" not in state.told:
        state = replace(state, told=state.told | {"stuck"})
        share = len(stuck) / len(pushed)
        names = tuple(p.name for p in stuck[:LISTED])
        owned = all(p.owner is not None for p in stuck)
        events.append(
            observed(
                "stuck_parameter",
                first,
                stuck[0].module,
                parameters=names,
                share=share,
                owned=owned,
                dtype=stuck[0].dtype,
            )
        )
    return _updates_stop(state, record, now, events, needed)


def _left_behind(
    p: ParameterFacts, s: ParameterStats, record: StepRecord, facts: RunFacts, now: frozenset[str]
) -> bool:
    """Whether what moved before should still move: its optimizer moves others, and no rate or rounding stops it.

    The module was replaced: the optimizer goes on updating the old tensor. A group of rate zero rests on purpose, and
    a scale or bias of few elements may be clamped at a limit of its own.
    """
    eps, mates = EPS.get(p.dtype), {q.name for q in facts.parameters if q.owner == p.owner and q.name != p.name}
    if not record.rates or min(record.rates) <= 0 or eps is None or p.numel < FEW or not mates & now:
        return False
    held = facts.optimizers[p.owner] if p.owner is not None and p.owner < len(facts.optimizers) else None
    push = (s.gradient or 0.0) if held is None or held.kind == "SGD" else 1.0
    return min(record.rates) * push > ROUNDED * eps * (s.weight or 0.0)


def _lost(p: ParameterFacts, s: ParameterStats, record: StepRecord, facts: RunFacts) -> bool:
    """Whether a plain step this small is lost to rounding: then the gradient has vanished, nothing is stuck."""
    eps = EPS.get(p.dtype)
    held = facts.optimizers[p.owner] if p.owner is not None and p.owner < len(facts.optimizers) else None
    if eps is None or held is None or held.kind != "SGD" or not record.rates:
        return False
    return max(record.rates) * (s.gradient or 0.0) < eps * (s.weight or 0.0)


def _updates_stop(
    state: State, record: StepRecord, now: frozenset[str], events: list[SemanticEvent], needed: int
) -> tuple[State, list[SemanticEvent]]:
    if now:
        return replace(state, stopped=0), events
    since = state.stopped_since if state.stopped else record.step
    state = replace(state, stopped=state.stopped + 1, stopped_since=since)
    enough = STOPPED if record.stepped else needed
    if state.stopped >= enough and "stop" not in state.told:
        state = replace(state, told=state.told | {"stop"})
        events = [*events, observed("updates_stop", since, since=since, moved_before=bool(state.moved))]
    return state, events


def _nothing_trains(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    owned = [p for p in facts.parameters if p.owner is not None]
    if not owned or any(p.trainable for p in owned) or "nothing" in state.told:
        return replace(state, nothing=0), []
    since = state.nothing_since if state.nothing else record.step
    state = replace(state, nothing=state.nothing + 1, nothing_since=since)
    if state.nothing < NOTHING:
        return state, []
    frozen = sum(not p.trainable for p in facts.parameters)
    event = observed(
        "nothing_trains",
        since,
        owned[0].module,
        owned=len(owned),
        owned_trainable=0,
        frozen=frozen,
    )
    return replace(state, told=state.told | {"nothing"}), [event]
