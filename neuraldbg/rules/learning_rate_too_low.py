"""Learning rate too low

What it is
    Every update goes the right way and is far too small. Nothing is broken, and the loss would take many times
    the run's length to come down.

How it looks
    The loss falls at every step, the gradient keeps its direction (cosine near 1), and at the end most of the
    first loss is still there.

What speaks against it
    A hidden layer at its limits, inputs or targets of huge scale, or the same few batches again and again: these
    look as slow and are other faults. A loss that is already far below chance is only early in its training.

What to do
    Multiply the rate by ten until the loss falls fast: optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)

Reference
    Smith, "Cyclical Learning Rates for Training Neural Networks", 2017 (the range test).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import lasting, value
from neuraldbg.run import Run

LEFT = 0.3  # share of the first loss; a healthy twin with the same steady fall has 0.01 left
FAR_BELOW = 0.3  # of chance; below it the run is learning

OTHER = ("saturation", "dead_units", "repeated_batch", "unscaled_target", "vanishing_with_depth", "stuck_parameter")


def learning_rate_too_low(run: Run) -> Iterator[Claim]:
    slow = next(lasting(run, "slow_progress"), None)
    if slow is None or run.has(*OTHER):
        return
    left, skill = value(slow, "tail_head", 0.0), run.skill
    if left < LEFT or (skill is not None and skill < FAR_BELOW):
        return
    yield Claim(
        cause="learning_rate_too_low",
        failure_type="optimizer_instability",
        layer_name=None,
        step=slow.step,
        predicts={"loss_plateau": 1000},
        evidence_for=(slow,),
        remedy="raise the learning rate tenfold until the loss falls fast, then take a third of that",
        summary=f"the loss falls at every step and {left:.0%} of it is left",
        refuted_by="a run with ten times the rate that falls no faster",
        strength=math.log10(left / LEFT) + 0.3,
    )
