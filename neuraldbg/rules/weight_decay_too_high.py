"""Weight decay too high

What it is
    The decay term outweighs the gradient: the weights, and the signal with them, shrink towards zero.

How it looks
    The weights fall by more than half a decade with weight decay on, and the loss does not fall.

What speaks against it
    A loss that falls meanwhile: moderate decay shrinks weights in every healthy run.

What to do
    Lower it and leave biases and norms out: torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01)

Reference
    Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning, value
from neuraldbg.run import Run

USUAL_LG = 0.5  # decades by which healthy weights shrink at most


def weight_decay_too_high(run: Run) -> Iterator[Claim]:
    shrink = next(lasting(run, "weights_shrink"), None)
    if shrink is None or not not_learning(run):
        return
    if run.facts.optimizers and not any(o.weight_decay > 0 for o in run.facts.optimizers):
        return
    fall = abs(value(shrink, "decay_lg", USUAL_LG))
    yield Claim(
        cause="weight_decay_too_high",
        failure_type="optimizer_instability",
        layer_name=None,
        step=shrink.step,
        predicts={**STARVED, "dead_units": 1000},
        evidence_for=(shrink, *lasting(run, "loss_plateau")),
        remedy="lower weight_decay (0.01 is a usual value for AdamW) and leave biases and norms out of it",
        summary=f"the weights shrank {10**fall:.3g}-fold while the loss did not fall",
        refuted_by="a run with weight_decay=0 that ends the same way",
        strength=max(0.0, fall - USUAL_LG),
    )
