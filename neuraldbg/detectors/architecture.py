"""Exact facts about the model, known after the first forward passes: they need no threshold."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import lg, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

EVAL_STEPS = 10  # steps in which everything that has a training mode ran in the other one
MICRO = 8  # backward passes in a step: fewer may be the losses of several tasks or players
TRAIN_MODES = ("Dropout", "BatchNorm", "AlphaDropout")


@dataclass(frozen=True)
class Seen:
    told: frozenset[tuple[str, str]] = frozenset()
    evaluating: int = 0
    since: int = 0


def initial(settings: Settings) -> Seen:
    return Seen()


def step(state: Seen, record: StepRecord, facts: RunFacts) -> tuple[Seen, list[SemanticEvent]]:
    if not record.sampled:
        return state, []
    found = [*_norms(record, facts), *_softmaxes(record, facts), *_loss(record), *_zero_factors(facts)]
    fresh = [e for e in found if (e.symptom, e.layer_name or "") not in state.told]
    state = replace(state, told=state.told | {(e.symptom, e.layer_name or "") for e in fresh})
    return _eval_mode(state, record, facts, fresh)


def _norms(record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
    return [
        observed("norm_over_one", record.step, m.name, size=1)
        for m in facts.modules
        if m.norm_over == 1 and m.name in record.layers
    ]


def _softmaxes(record: StepRecord, facts: RunFacts) -> list[SemanticEvent]:
    return [
        observed("softmax_over_one", record.step, m.name)
        for m in facts.modules
        if m.activation == "softmax" and not m.functional and m.width == 1 and m.name in record.layers
    ]


def _loss(record: StepRecord) -> list[SemanticEvent]:
    loss, events = record.loss_stats, []
    rows = max((x.rows for x in record.inputs), default=0)
    if loss is not None and loss.reduction == "sum" and rows != 1:
        events.append(observed("summed_loss", record.step, loss_kind=loss.kind, rows=rows))
    if record.backwards >= MICRO and record.divided is False and loss is not None and loss.reduction == "mean":
        many = record.backwards
        events.append(observed("summed_loss", record.step, loss_kind=loss.kind, rows=many, accumulated=True))
    if loss is not None and loss.sign < 0:
        events.append(observed("negated_loss", record.step, loss_kind=loss.kind))
    if loss is not None and loss.probabilities:
        events.append(observed("double_softmax", record.step, chance=loss.chance))
    return events


def _zero_factors(facts: RunFacts) -> list[SemanticEvent]:
    """Two weight matrices in a row that both start at zero block each other's gradient (one alone is LoRA's way)."""
    layers = weight_layers(facts)
    return [
        observed("zero_factors", 0, a.name, other=b.name)
        for (a, p), (b, q) in itertools.pairwise(layers)
        if p.rms == 0.0 and q.rms == 0.0
    ]


def _eval_mode(
    state: Seen, record: StepRecord, facts: RunFacts, events: list[SemanticEvent]
) -> tuple[Seen, list[SemanticEvent]]:
    """Dropout and batch norms that should train (their own weights do) but run in eval mode, all of them."""
    modes = [
        s.training
        for m in facts.modules
        if any(kind in m.kind for kind in TRAIN_MODES)
        and (m.trainable or not m.parameters)
        and (s := record.layers.get(m.name)) is not None
    ]
    batch_norms = any("BatchNorm" in m.kind and m.trainable for m in facts.modules)
    if not modes or any(modes) or not (batch_norms or all(p.trainable for p in facts.parameters)):
        return replace(state, evaluating=0), events
    since = record.step if state.evaluating == 0 else state.since
    state = replace(state, evaluating=state.evaluating + 1, since=since)
    if state.evaluating == EVAL_STEPS:
        events = [*events, observed("eval_mode", since, modules=len(modes), rms_lg=_let_through(record, facts))]
    return state, events


def _let_through(record: StepRecord, facts: RunFacts) -> float | None:
    """lg of the largest rms that a batch norm in eval mode puts out; near 0 where its statistics fit the input."""
    rms = [
        s.rms
        for m in facts.modules
        if "BatchNorm" in m.kind and (s := record.layers.get(m.name)) is not None and not s.training and s.finite
    ]
    return lg(max(rms)) if rms else None
