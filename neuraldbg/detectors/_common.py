"""What detectors share: logs that cannot fail, the weight layers in forward order, robust spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from neuraldbg.events import LISTED
from neuraldbg.record import InputStats, LayerStats, ModuleFacts, ParameterFacts, RunFacts, StepRecord

FLOOR = 1e-30  # below any float32 statistic that is not zero
WINDOW = 40  # steps that are remembered: the longest window that units are counted over (WINDOW_STEPS of the watcher)

LAST = 10**9  # in the place of a module that has not run, behind all that have


def lg(x: float | None) -> float:
    """log10, with a floor for zero and NaN for what is not a number."""
    if x is None or x != x:
        return math.nan
    return math.log10(max(abs(x), FLOOR)) if math.isfinite(x) else math.inf


def size(stats: LayerStats) -> float:
    """The largest absolute value of a module's output."""
    return max(abs(stats.low), abs(stats.high))


def mad(values: Sequence[float]) -> float:
    """1.4826 x median absolute deviation: a standard deviation that outliers do not move."""
    centre = statistics.median(values)
    return 1.4826 * statistics.median(abs(v - centre) for v in values)


def weight_layers(facts: RunFacts) -> list[tuple[ModuleFacts, ParameterFacts]]:
    """(module, weight matrix) of linear, convolutional and recurrent layers, first to last in the forward pass.

    Embeddings are left out (most of their rows have no gradient), norms too (their weights are vectors).
    """
    largest: dict[str, ParameterFacts] = {}
    for p in facts.parameters:
        if p.dims > 1 and p.trainable and (p.module not in largest or p.numel > largest[p.module].numel):
            largest[p.module] = p
    ran = sorted((m for m in facts.modules if m.order is not None and not m.has_children), key=lambda m: m.order or 0)
    return [(m, largest[m.name]) for m in ran if m.name in largest and "Embedding" not in m.kind]


def in_order(facts: RunFacts) -> list[ModuleFacts]:
    """All modules in the order in which they ran; those that never did come last."""
    return sorted(facts.modules, key=lambda m: m.order if m.order is not None else LAST)


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of values against their index."""
    n = len(values)
    if n < 2:
        return 0.0
    mean_x, mean_y = (n - 1) / 2, sum(values) / n
    return sum((i - mean_x) * (v - mean_y) for i, v in enumerate(values)) / sum((i - mean_x) ** 2 for i in range(n))


def previous_layer(facts: RunFacts, name: str) -> str | None:
    """The layer with parameters that ran just before a module (itself, where it has some)."""
    module = facts.module(name)
    if module is None or module.order is None:
        return None
    before = [
        m
        for m in facts.modules
        if m.order is not None and m.order <= module.order and m.parameters and not m.has_children
    ]
    return max(before, key=lambda m: m.order or 0).name if before else None


def clean(record: StepRecord) -> bool:
    """Whether this step's statistics can be used: sampled, and nothing non-finite in it."""
    return record.sampled and record.first_bad is None


def batch_of(record: StepRecord, x: InputStats | None, rows: Sequence[int] = ()) -> dict[str, Any]:
    """Which batch it was: its fingerprint (None where it is not finite) and, where the sampler is known, its samples.

    rows: the samples to blame within the batch; none: the batch as a whole.
    """
    out: dict[str, Any] = {}
    if record.samples is not None:
        chosen = rows or range(len(record.samples))
        out["samples"] = tuple(record.samples[r] for r in chosen if r < len(record.samples))[:LISTED]
    if x is not None and math.isfinite(x.fingerprint):
        out["fingerprint"] = x.fingerprint
    return out
