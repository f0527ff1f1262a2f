"""Wrong loss

What it is
    The loss does not fit the targets. Binary cross-entropy outside [0, 1] has no lower bound: the gradient keeps
    pushing the same way and everything runs away to minus infinity.

How it looks
    Targets outside the range of the loss from the first batch on; later a loss below zero, gradients that grow
    in one direction, non-finite values. Targets that are far outside are told before any of that.

What speaks against it
    Targets inside the range. Soft labels between 0 and 1 are right, and a few hundredths outside, by smoothing or
    rounding, are only noted where no harm follows.

What to do
    Use a regression loss for numbers: criterion = torch.nn.MSELoss(), on scaled targets

Reference
    Stack Overflow question 46642627.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, STARVED, lasting, value
from neuraldbg.run import Run

FAR = 0.05  # outside [0, 1]: more than smoothing or rounding, and the loss has no lower bound there

PREDICTS = {**BLOW_UP, **STARVED, "saturation": 1000, "dead_units": 1000, "loss_spike": 1000}


def wrong_loss(run: Run) -> Iterator[Claim]:
    outside = run.first("target_range")
    if outside is None:
        return
    burst = tuple(lasting(run, *NONFINITE, "exploding_gradient"))
    harm = (
        *burst,
        *lasting(run, "loss_diverging", "loss_plateau", "loss_oscillating", "violent_update", "activation_growth"),
    )
    low, high = value(outside, "target_low", 0.0), value(outside, "target_high", 0.0)
    yield Claim(
        cause="wrong_loss",
        failure_type="exploding_gradients" if burst else "optimizer_instability",
        layer_name=None,
        step=outside.step,
        predicts=PREDICTS,
        evidence_for=(outside, *harm),
        remedy="use a loss that fits the targets (MSELoss for numbers), or scale the targets into its range",
        summary=f"targets from {low:g} to {high:g}, the loss expects [0, 1]",
        refuted_by="targets inside the loss's range",
        exact=True,
        outcome=bool(harm) or low < -FAR or high > 1 + FAR,
    )
