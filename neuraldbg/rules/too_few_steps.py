"""Too few steps

What it is
    Nothing is wrong: the loss was still falling when the training ended, and it had a long way to go.

How it looks
    The loss ends above a third of chance (of the first loss, where chance is unknown) and below nine tenths of
    what it was in the middle of the run.

What speaks against it
    A plateau, a jump, anything not finite; a loss that falls in the same slow way at every step (the rate is too low).

What to do
    Train longer: for epoch in range(10 * epochs), or start from a higher rate.

Reference
    Karpathy, "A Recipe for Training Neural Networks", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.run import Run, median

STEPS = 30  # fewer have no middle and no end
LEFT = 1 / 3  # of chance, or of the first loss
FALLING = 0.9  # the end over the middle
STRENGTH = 0.2  # of any note without a calibration: its confidence stays below one half


def too_few_steps(run: Run) -> Iterator[Claim]:
    """Advice for a run in which nothing went wrong."""
    skill, loss = run.get("skill"), run.get("loss")
    known = skill if len(skill) >= STEPS else loss
    head, tail = known.head(), known.tail()
    middle = median(known.values[len(known) * 2 // 5 : len(known) * 3 // 5 + 1])
    if not run.finished or len(known) < STEPS or head is None or tail is None or middle is None or head <= 0:
        return
    left = tail if known is skill else tail / head
    if not (LEFT < left < 1.0 and 0 < tail < FALLING * middle) or run.first_nonfinite is not None:
        return
    if run.has("loss_plateau", "loss_diverging", "slow_progress", "rate_zero"):
        return
    yield Claim(
        cause="too_few_steps",
        failure_type="optimizer_instability",
        layer_name=None,
        step=known.steps[-1],
        remedy="train longer, or start from a higher rate",
        summary=f"{left:.0%} of {'chance' if known is skill else 'the first loss'} is left,"
        f" and the loss still fell by {1 - tail / middle:.0%} over the second half",
        refuted_by="a run of twice the length that ends where this one did",
        strength=STRENGTH,
        outcome=False,
        advice=True,
    )
