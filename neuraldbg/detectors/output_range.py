"""An output activation that cannot produce the targets, keeps the loss from its floor, or whose units are dead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import WINDOW
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import LayerStats, LossStats, ModuleFacts, RunFacts, StepRecord
from neuraldbg.settings import Settings

RANGES = {"relu": (0.0, float("inf")), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(0.0, x),
    "sigmoid": lambda x: 0.5 * (1.0 + math.tanh(0.5 * x)),
    "tanh": math.tanh,
}
REACHED = 0.9  # of the target range; less of it out of reach is rounding or label noise
DEAD = 0.15  # share of output units: one of six classes that can never be predicted
BATCHES = 3  # in a row: the extremes of one batch may be a single outlier
FLOOR = 0.2  # of the chance level: with scores in [-1, 1] a loss on ten logits stays above 0.35 of it
CLOSE = 1e-3  # rounding of what is compared
NEAR = 0.8  # of the way from the middle of a bounded range to its end


@dataclass(frozen=True)
class Seen:
    ranges: frozenset[str] = frozenset()
    short: tuple[tuple[int, float], ...] = ()
    confined: int | None = None  # first step in which the loss was seen to take scores of a bounded activation
    held: tuple[str, float] = ("", 0.0)  # that activation, and the floor of the loss
    dead: frozenset[str] = frozenset()
    steps: tuple[int, ...] = ()


def initial(settings: Settings) -> Seen:
    return Seen()


def step(state: Seen, record: StepRecord, facts: RunFacts) -> tuple[Seen, list[SemanticEvent]]:
    if not record.sampled or record.first_bad is not None:
        return state, []
    state = replace(state, steps=(*state.steps, record.step)[-WINDOW:])
    events: list[SemanticEvent] = []
    for m in facts.modules:
        if m.position != "output" or m.activation not in RANGES or m.name not in record.layers:
            continue
        covered = coverage(m, record)
        if m.name not in state.ranges:
            state, found = _reach(state, m, covered, record, facts)
            events.extend(found)
        dead = record.layers[m.name].dead
        if m.activation == "relu" and dead is not None and dead >= DEAD and m.name not in state.dead:
            state = replace(state, dead=state.dead | {m.name})
            window = state.steps[-(record.window or 1) :]
            events.append(observed("output_range", window[0], m.name, low=0.0, covered=covered, dead=dead))
    return state, events


def finish(state: Seen, facts: RunFacts) -> list[SemanticEvent]:
    """Scores that were confined and never came near their limits: whether that did harm is for the loss to say."""
    name, held_up = state.held
    if state.confined is None or name in state.ranges:
        return []
    return [observed("output_range", state.confined, name, covered=None, dead=None, floor=held_up, pushed=False)]


def _reach(
    state: Seen, m: ModuleFacts, covered: float | None, record: StepRecord, facts: RunFacts
) -> tuple[Seen, list[SemanticEvent]]:
    """Said once, when the targets of a few batches in a row, or the floor of the loss, are out of reach."""
    held_up = floor(m, record, facts)
    if held_up is not None and held_up >= FLOOR:
        since = record.step if state.confined is None else state.confined
        if not at_limit(m, record.layers[m.name]):
            return replace(state, confined=since, held=(m.name, held_up)), []
        low, high = RANGES[m.activation]
        event = observed("output_range", since, m.name, low=low, high=high, covered=None, dead=None, floor=held_up)
        return replace(state, ranges=state.ranges | {m.name}), [event]
    if covered is None:
        return state, []
    short = (*state.short, (record.step, covered)) if covered < REACHED else ()
    if len(short) < BATCHES:
        return replace(state, short=short), []
    low, high = RANGES[m.activation]
    loss = record.loss_stats
    event = observed(
        "output_range",
        short[0][0],
        m.name,
        low=low,
        high=high,
        covered=statistics.median(c for _, c in short),
        dead=None,
        target_low=loss.target_low if loss else None,
        target_high=loss.target_high if loss else None,
    )
    return replace(state, ranges=state.ranges | {m.name}, short=()), [event]


def floor(m: ModuleFacts, record: StepRecord, facts: RunFacts) -> float | None:
    """The least loss on scores that this activation can give, over chance; None where the loss takes no logits.

    Cross-entropy over C classes: log(1 + (C - 1) exp(low - high)); binary on logits: softplus(-high) of the ones and
    softplus(low) of the zeros, as many of each. Only of the single last output of a single model.
    """
    loss, given = record.loss_stats, reached(m, record.layers[m.name])
    ends = [f for f in facts.modules if f.position == "output" and not f.has_children and f.order is not None]
    if loss is None or not loss.chance or len(facts.models) > 1 or [f.name for f in ends] != [m.name]:
        return None
    low, high = RANGES[m.activation]
    if loss.kind == "bce_with_logits" and taken(loss, given):
        return 0.5 * (math.log1p(math.exp(-high)) + math.log1p(math.exp(low))) / loss.chance
    if loss.kind == "nll" and m.width and m.width > 1 and high < math.inf:
        least = low - high - math.log(m.width)  # of a log-probability, where the scores were not scaled up
        if loss.output_low is None or loss.output_low > least - CLOSE:
            return math.log1p((m.width - 1) * math.exp(low - high)) / loss.chance
    return None


def reached(m: ModuleFacts, s: LayerStats) -> tuple[float, float]:
    """Lowest and highest value behind the activation; of one that is a function the module's own lie before it."""
    if not m.functional:
        return s.low, s.high
    function = FUNCTIONS[m.activation]
    return function(s.low), function(s.high)


def taken(loss: LossStats, given: tuple[float, float]) -> bool:
    """Whether the loss's input is within what the activation gave: then nothing scaled it in between."""
    if loss.output_low is None or loss.output_high is None:
        return True
    return loss.output_low >= given[0] - CLOSE and loss.output_high <= given[1] + CLOSE


def at_limit(m: ModuleFacts, s: LayerStats) -> bool:
    """Whether some output is pushed to the end of the range: a limit that nothing comes near does no harm."""
    (low, high), given = RANGES[m.activation], reached(m, s)
    if high == math.inf:
        return given[0] <= low
    middle = (low + high) / 2
    return max(given[1] - middle, middle - given[0]) >= NEAR * (high - low) / 2


def coverage(m: ModuleFacts, record: StepRecord) -> float | None:
    """Share of this batch's target range that the activation can produce; None where targets are unknown."""
    loss = record.loss_stats
    if loss is None or loss.kind == "nll" or loss.target_low is None or loss.target_high is None:
        return None
    if not taken(loss, reached(m, record.layers[m.name])):
        return None  # scaled to the targets behind the activation: an actor's 2 * tanh
    low, high = RANGES[m.activation]
    width = loss.target_high - loss.target_low
    if width <= 0:
        return 1.0 if low <= loss.target_low <= high else 0.0
    return max(0.0, min(high, loss.target_high) - max(low, loss.target_low)) / width
