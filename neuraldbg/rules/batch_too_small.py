"""Batch too small

What it is
    The gradient of a few samples points almost anywhere. The updates cancel each other, and the loss swings about a
    level that it does not leave.

How it looks
    Batches of at most eight samples, a loss whose noise is a third of its level and more, gradients that have
    nothing in common from one step to the next, and a level that no longer falls and is far above zero.

What speaks against it
    Accumulation over micro-batches: the update then sees many samples. A loss that falls all the same.

What to do
    DataLoader(dataset, batch_size=64), or accumulate gradients over as many micro-batches.

Reference
    McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.run import Run, median

ROWS = 8  # samples; batches of 16 train most things
STEPS = 60
NOISE = 0.33  # median absolute deviation over the median of the losses of the second half
LEFT = 1 / 3  # of chance
FALLING = 0.95  # the last quarter over the third
TURNING = 0.2  # cosine of successive gradients; full batches give 0.9
STRENGTH = 0.2  # of any note without a calibration: its confidence stays below one half


def batch_too_small(run: Run) -> Iterator[Claim]:
    """Advice: what is known of a loss that no longer falls."""
    rows, losses, skill = run.get("rows").tail(), run.get("loss").values, run.get("skill")
    if rows is None or rows > ROWS or len(losses) < STEPS or len(skill) < STEPS or run.first_nonfinite is not None:
        return
    half, quarter = losses[len(losses) // 2 :], len(skill) // 4
    level = statistics.median(half)
    noise = statistics.median(abs(v - level) for v in half) / abs(level) if level else 0.0
    before, after = median(skill.values[-2 * quarter : -quarter]), median(skill.values[-quarter:])
    cosine = run.get("cosine").tail(100)
    if before is None or after is None or noise < NOISE or not (after > LEFT and after > FALLING * before):
        return
    if cosine is None or abs(cosine) > TURNING:
        return
    yield Claim(
        cause="batch_too_small",
        failure_type="optimizer_instability",
        layer_name=None,
        step=0,
        remedy="raise the batch size, or accumulate gradients over several batches",
        summary=f"batches of {rows:.0f} samples, and the loss swings by {noise:.0%} of its level",
        refuted_by="the same training with eight times the batch that ends where this one did",
        strength=STRENGTH,
        outcome=False,
        advice=True,
    )
