"""Loss scale

What it is
    The loss is summed over the batch (or accumulated without dividing by the count), so the gradients, and with
    SGD the updates, grow with the number of samples.

How it looks
    A loss with reduction "sum" over many samples, or many backward passes in a step from losses that no constant
    divides; and updates far too large from the first step on.

What speaks against it
    Adam and its kind divide the scale out again; a rate chosen for the sum trains as well as any.

What to do
    Take the mean: criterion = torch.nn.MSELoss(reduction="mean"), or loss = loss / accumulation_steps

Reference
    Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 3 on the loss and the batch size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, STARVED, adaptive, lasting, units_die, value
from neuraldbg.run import Run

MANY = 8  # samples; below that a sum is within a step of the usual search for a rate

PREDICTS = {**BLOW_UP, **STARVED, "loss_spike": 50, "dead_units": 60, "saturation": 60}


def loss_scale(run: Run) -> Iterator[Claim]:
    summed = run.first("summed_loss")
    rows = value(summed, "rows", 0.0) if summed else 0.0
    if summed is None or rows < MANY or adaptive(run):
        return
    upset = tuple(run.all("violent_update", "exploding_gradient"))[:2]
    ruined = (
        *lasting(run, *NONFINITE, "loss_diverging", "loss_oscillating", "loss_plateau", "constant_output"),
        *filter(units_die, lasting(run, "dead_units")),
    )
    if not upset or not ruined or run.has("rate_jump", "carried_gradient", "target_range"):
        return
    yield Claim(
        cause="loss_scale",
        failure_type="exploding_gradients" if any(e.symptom in NONFINITE for e in ruined) else "optimizer_instability",
        layer_name=None,
        step=summed.step,
        predicts=PREDICTS,
        evidence_for=(summed, *upset, *ruined),
        remedy='take the mean over the batch (reduction="mean"), or divide the loss by the accumulated batches',
        summary=f"the gradients of {rows:.0f} backward passes are added up and nothing is divided by {rows:.0f}"
        if summed.metadata.get("accumulated")
        else f"the loss is a sum over {rows:.0f} values",
        refuted_by="the same run with the mean that ends the same way",
        strength=min(1.0, math.log10(rows) / 2),
    )
