"""Running statistics of a batch norm that are unlike those of the batches when the training ends."""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.detectors._common import clean
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

TIMES = 2.0  # the batches' rms over the one that the running statistics stand for; a usual momentum ends within 1.1
STEPS = 50  # samples; with fewer the usual momentum of 0.1 has not forgotten the initial 0 and 1


@dataclass(frozen=True)
class State:
    inputs: dict[str, tuple[int, float]]


def initial(settings: Settings) -> State:
    return State({})


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    """Remembers how many batches each batch norm has seen in training, and the rms of the last one."""
    if not clean(record):
        return state, []
    seen = {
        m.name: s.inputs_rms
        for m in facts.modules
        if "BatchNorm" in m.kind
        and (s := record.layers.get(m.name)) is not None
        and s.training
        and s.inputs_rms is not None
    }
    if not seen:
        return state, []
    counts = {name: (state.inputs.get(name, (0, 0.0))[0] + 1, rms) for name, rms in seen.items()}
    return State({**state.inputs, **counts}), []


def finish(state: State, facts: RunFacts) -> list[SemanticEvent]:
    ran = sorted((m for m in facts.modules if m.order is not None), key=lambda m: m.order or 0)
    for m in ran:
        count, batch = state.inputs.get(m.name, (0, 0.0))
        if m.running_rms is None or count < STEPS or not batch > 0:
            continue
        times = max(batch / m.running_rms, m.running_rms / batch) if m.running_rms > 0 else float("inf")
        if times > TIMES:
            return [observed("stale_statistics", 0, m.name, times=times, running=m.running_rms, batch=batch)]
    return []
