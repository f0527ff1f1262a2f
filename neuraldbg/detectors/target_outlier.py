"""One target far outside all others, or a target outside what the loss is defined on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import batch_of
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

DEVIATIONS = 50.0  # robust deviations from the batch's median target; heavy tails stay below 20
TIMES = 20.0  # and far beyond the worst of earlier batches
EARLIER = 10  # batches before it counts: heavy tails have shown theirs by then
MOST = 5  # that are told; more are how these targets are
UNSCALED = 1e9  # more means that over half of the targets are equal, so that there was no deviation to divide by
LOW, HIGH = -1e-6, 1 + 1e-6  # of a binary cross-entropy, with rounding


@dataclass(frozen=True)
class Seen:
    batches: int = 0
    worst: float = 0.0
    told: int = 0
    range_told: bool = False


def initial(settings: Settings) -> Seen:
    return Seen()


def step(state: Seen, record: StepRecord, facts: RunFacts) -> tuple[Seen, list[SemanticEvent]]:
    loss = record.loss_stats
    if loss is None:
        return state, []
    events: list[SemanticEvent] = []
    low, high = loss.target_low, loss.target_high
    outside = low is not None and high is not None and (low < LOW or high > HIGH)
    if loss.kind.startswith("bce") and outside and not state.range_told:
        events.append(observed("target_range", record.step, loss_kind=loss.kind, target_low=low, target_high=high))
        state = replace(state, range_told=True)
    if loss.outlier is not None and loss.outlier < UNSCALED:
        z = loss.outlier
        if state.batches >= EARLIER and z > DEVIATIONS and z > TIMES * state.worst and state.told < MOST:
            x = record.inputs[0] if record.inputs else None
            events.append(observed("target_outlier", record.step, z=z, usual=state.worst, **batch_of(record, x)))
            return replace(state, told=state.told + 1), events
        state = replace(state, batches=state.batches + 1, worst=max(state.worst, z))
    return state, events
