"""Schedule jump

What it is
    The learning rate changes by a jump: a scheduler stepped in the wrong unit, a resumed run that lost its
    schedule, a restart. The updates that follow are far too large for trained weights.

How it looks
    The rate of a parameter group rises more than tenfold within one step; in the same step or the next the update,
    the gradient and the loss jump, and rectified units may die for good.

What speaks against it
    The start of a warm-up, the restart of a cycle that was seen before, and a jump that nothing follows.

What to do
    Print the schedule before training: print([group["lr"] for group in optimizer.param_groups]) at each step.

Reference
    PyTorch documentation, "How to adjust learning rate": scheduler.step() once per epoch or per batch, not both.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, value
from neuraldbg.run import Run

SOON = 5  # steps: the loss follows one step after, units that die two or three

PREDICTS = {**BLOW_UP, **STARVED, "loss_spike": SOON, "dead_units": 50, "violent_update": SOON, "saturation": 50}
HARM = {
    "loss_spike": SOON,
    "violent_update": SOON,
    "dead_units": 20,
    "saturation": 20,
    "exploding_gradient": SOON,
    "loss_diverging": 50,
    "loss_plateau": 50,
    "nonfinite_activation": 50,
    "nonfinite_gradient": 50,
    "nonfinite_weight": 50,
    "loss_nonfinite": 50,
}


def schedule_jump(run: Run) -> Iterator[Claim]:
    for jump in run.all("rate_jump"):
        if value(jump, "after", 1.0) < value(jump, "before", 0.0):
            continue  # a decay in steps is a common schedule
        harm = follows(run, jump, HARM)
        decades = value(jump, "decades", 1.0)
        yield Claim(
            cause="schedule_jump",
            failure_type="optimizer_instability",
            layer_name=None,
            step=jump.step,
            predicts=PREDICTS,
            evidence_for=(jump, *harm),
            remedy="bound the schedule and step it in the right unit; restore it with the optimizer when resuming",
            summary=f"the rate rises {10**decades:.3g}-fold within one step",
            refuted_by="the same run with the rate held constant that ends the same way",
            exact=True,
            outcome=bool(harm),
        )
        return
