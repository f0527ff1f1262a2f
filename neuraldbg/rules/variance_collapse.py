"""Variance collapse

What it is
    A learned scale (the spread of a likelihood, the width of a mixture's component) goes to zero where the mean meets
    its targets exactly. The likelihood has no upper bound there, and its gradient grows as one over the scale.

How it looks
    The loss falls below zero, the layer that gives the logarithm of the scale falls with it, and the gradient grows
    a hundredfold. Then the mean misses a target by a little: the loss leaps up, the scale springs back, and it
    begins again; or a division by the scale is not finite.

What speaks against it
    A scale with a floor; a loss whose operator is known and that has a lower bound; a loss that falls below zero
    without leaps while the gradient stays as it was.

What to do
    Keep the scale off zero: scale = torch.nn.functional.softplus(raw) + 1e-2, or torch.nn.GaussianNLLLoss(eps=1e-2)

Reference
    Bishop, "Pattern Recognition and Machine Learning", 2006, section 9.2.1 on collapsing components.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, FOREVER, NONFINITE, lasting, value
from neuraldbg.run import Run

LEAPS = 2  # of the loss, up from below zero: one may be an odd batch
STRENGTH = 0.5  # three conditions at once, none of which a healthy run with a floor under its scale fulfils


def variance_collapse(run: Run) -> Iterator[Claim]:
    fallen = run.first("scale_collapse")
    if fallen is None:
        return
    leaps = [e for e in run.all("loss_spike") if e.step >= fallen.step and value(e, "before", 1.0) < 0]
    burst = tuple(lasting(run, *NONFINITE, since=fallen.step))
    yield Claim(
        cause="variance_collapse",
        failure_type="exploding_gradients" if burst else "optimizer_instability",
        layer_name=fallen.layer_name,
        step=fallen.step,
        predicts={**BLOW_UP, "loss_spike": FOREVER},
        evidence_for=(fallen, *leaps[:3], *burst),
        remedy="put a floor under the scale (softplus(raw) + 1e-2), or bound its logarithm from below",
        summary=f"the logarithm of the scale fell to {value(fallen, 'mean', 0.0):.1f},"
        f" the gradient grew {10 ** value(fallen, 'growth_lg', 1.0):.0f}-fold",
        refuted_by="a run with a floor under the scale that leaps as well",
        strength=STRENGTH,
        outcome=len(leaps) >= LEAPS or bool(burst),
    )
