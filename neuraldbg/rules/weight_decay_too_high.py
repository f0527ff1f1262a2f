"""Weight decay too high

What it is
    The decay term outweighs the gradient: the weights, and the signal with them, shrink towards zero.

How it looks
    The weights fall by more than half a decade with weight decay on, and the loss does not fall. Or they stay where
    decay holds them: it makes at least half of every update, and the loss stands still or grows. Or decay alone would
    take a hundredth of the weights and more at every step, more than they move in all: the gradient only makes up for
    it, and what was learned a hundred steps ago is gone, so that the loss stops far from zero.

What speaks against it
    A loss that falls meanwhile: moderate decay shrinks weights in every healthy run. A decay of less than a
    thousandth of the weights a step; an adaptive optimizer that has the decay inside its gradient; violent updates. A
    loss that is far below chance all the same.

What to do
    Lower it and leave biases and norms out: torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01)

Reference
    Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019. Wang, Aitchison, "How to set AdamW's weight decay
    as you scale model and dataset size", 2024 (the time over which weights are remembered).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import FOREVER, STARVED, lasting, not_learning, value
from neuraldbg.record import OptimizerFacts
from neuraldbg.run import Run

USUAL_LG = 0.5  # decades by which healthy weights shrink at most

SHARE = 0.5  # of an update that decay alone makes; with a usual decay of 0.01 it is below a hundredth
FASTEST = 1e-3  # of the weights a step: a slower decay leaves a hundred steps nearly alone
STRONG = 0.3  # no healthy run of those measured had decay in balance with its gradient
LEARNT = 0.25  # of chance: a run that gets below it learns all the same

REMEDY = "lower weight_decay (0.01 is a usual value for AdamW) and leave biases and norms out of it"


def weight_decay_too_high(run: Run) -> Iterator[Claim]:
    shrink = next(lasting(run, "weights_shrink"), None)
    if shrink is None or not not_learning(run):
        yield from _outweighs(run)
        return
    if run.facts.optimizers and not any(o.weight_decay > 0 for o in run.facts.optimizers):
        return
    fall = abs(value(shrink, "decay_lg", USUAL_LG))
    yield Claim(
        cause="weight_decay_too_high",
        failure_type="optimizer_instability",
        layer_name=None,
        step=shrink.step,
        predicts={**STARVED, "dead_units": FOREVER},
        evidence_for=(shrink, *lasting(run, "loss_plateau")),
        remedy=REMEDY,
        summary=f"the weights shrank {10**fall:.3g}-fold while the loss did not fall",
        refuted_by="a run with weight_decay=0 that ends the same way",
        strength=max(0.0, fall - USUAL_LG),
    )


def _outweighs(run: Run) -> Iterator[Claim]:
    """Decay and gradient hold each other, from the first steps on, and the loss has nowhere to go."""
    balance, skill = run.first("decay_outweighs"), run.skill
    inside = balance is not None and balance.metadata.get("inside") is True
    stopped = not_learning(run) if inside else skill is None or skill > LEARNT
    if balance is None or not stopped or run.has("violent_update"):
        yield from _dominates(run)
        return
    times = value(balance, "ratio", 1.0)
    yield Claim(
        cause="weight_decay_too_high",
        failure_type="optimizer_instability",
        layer_name=None,
        step=0 if not inside else balance.step,
        predicts={**STARVED, "dead_units": FOREVER, "weights_shrink": FOREVER},
        evidence_for=(balance, *lasting(run, "loss_plateau")),
        remedy=REMEDY,
        summary=f"decay is {times:.1f} times as strong as what the gradient adds",
        refuted_by="a run with weight_decay=0 that ends the same way",
        strength=min(1.0, STRONG + math.log10(max(times, 1.0))),
    )


def _dominates(run: Run) -> Iterator[Claim]:
    """Decay is most of every update, so that the weights stay where it holds them, and the loss does not fall."""
    still = next(lasting(run, "loss_plateau", "loss_diverging"), None)
    update = run.get("update").tail()
    decay = max((_decay(o) for o in run.facts.optimizers), default=0.0)
    if still is None or not update or decay < FASTEST or decay < SHARE * update or run.has("violent_update"):
        return
    yield Claim(
        cause="weight_decay_too_high",
        failure_type="optimizer_instability",
        layer_name=None,
        step=0,
        predicts={**STARVED, "dead_units": FOREVER},
        evidence_for=(still,),
        remedy=REMEDY,
        summary=f"decay takes {decay:.1%} of the weights at each step, the whole update is {update:.1%}",
        refuted_by="a run with weight_decay=0 that ends the same way",
        strength=min(1.0, math.log10(decay / FASTEST)),
    )


def _decay(optimizer: OptimizerFacts) -> float:
    """Share of the weights that decay takes at one step; inside the gradient of an adaptive optimizer it has none."""
    decoupled = optimizer.kind in ("AdamW", "NAdamW", "SGD", "Lion", "SGDW")
    return max(optimizer.rates, default=0.0) * optimizer.weight_decay if decoupled else 0.0
