"""Learning rate too low

What it is
    Every update goes the right way and is far too small. Nothing is broken, and the loss would take many times
    the run's length to come down.

How it looks
    The loss falls at every step, the gradient keeps its direction (cosine near 1), and at the end most of the
    first loss is still there. Where batch noise hides the fall, all updates together have moved the weights by a few
    percent of their size: the loss stands at chance, or it falls while the gradient keeps its direction and half of it
    is left. Or the schedule comes down to zero long before the run ends.

What speaks against it
    A hidden layer at its limits, inputs or targets of huge scale, or the same few batches again and again: these
    look as slow and are other faults. A loss that is already far below chance is only early in its training.
    Weights that stay where they are because no usable gradient arrives.

What to do
    Multiply the rate by ten until the loss falls fast: optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)

Reference
    Smith, "Cyclical Learning Rates for Training Neural Networks", 2017 (the range test).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import FOREVER, lasting, value
from neuraldbg.run import Run

LEFT = 0.3  # share of the first loss; a healthy twin with the same steady fall has 0.01 left
FAR_BELOW = 0.3  # of chance; below it the run is learning

PATH = 0.05  # sum of all updates over the weights, beside a loss at chance; healthy runs from chance exceed 0.1
BLIND = 0.02  # the same, where chance is unknown: a flat loss may be one that has converged
STILL = 0.6  # of chance, or of the first loss, is left
HALF = 0.5  # the same, where the loss falls
STRENGTH = 0.3  # of a path as long as is allowed
STRAIGHT = 0.5  # cosine of successive gradients: after a whole run the way down has not turned yet

REMEDY = "raise the learning rate tenfold until the loss falls fast, then take a third of that"
REFUTED_BY = "a run with ten times the rate that falls no faster"

STARVED_BY = (
    "vanishing_with_depth",
    "zero_gradient",
    "norm_over_one",
    "softmax_over_one",
    "small_weights",
    "negative_bias",
    "nothing_trains",
    "no_gradient",
    "zero_factors",
    "updates_stop",
    "unscaled_target",
    "output_range",
    "constant_output",
)
OTHER = ("saturation", "dead_units", "repeated_batch", "unscaled_target", "vanishing_with_depth", "stuck_parameter")


def learning_rate_too_low(run: Run) -> Iterator[Claim]:
    if (gone := run.first("rate_zero")) is not None:
        yield _gone(run, gone)
        return
    slow = next(lasting(run, "slow_progress"), None)
    if slow is None:
        yield from _short_path(run)
        return
    if run.has(*OTHER):
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
        remedy=REMEDY,
        summary=f"the loss falls at every step and {left:.0%} of it is left",
        refuted_by=REFUTED_BY,
        strength=math.log10(left / LEFT) + 0.3,
    )


def _gone(run: Run, gone: SemanticEvent) -> Claim:
    """The schedule has ended long before the run: nothing moves although gradients go on."""
    loss, skill = run.get("loss"), run.skill
    head, tail = loss.head(), loss.tail()
    left = skill if skill is not None else tail / head if head and tail and head > 0 else None
    return Claim(
        cause="learning_rate_too_low",
        failure_type="optimizer_instability",
        layer_name=None,
        step=gone.step,
        predicts={"loss_plateau": FOREVER, "updates_stop": FOREVER},
        evidence_for=(gone,),
        remedy="make the schedule as long as the training, and step it once an optimizer step, not once a process",
        summary=f"the rate is zero for the last {value(gone, 'share', 0.0):.0%} of the steps",
        refuted_by="a weight that changed in one of these steps",
        exact=True,
        outcome=left is not None and left > FAR_BELOW,
    )


def _short_path(run: Run) -> Iterator[Claim]:
    """Batch noise hides the slow fall, but not that the weights have hardly gone anywhere."""
    short, still = run.first("short_path"), next(lasting(run, "loss_plateau"), None)
    loss, skill = run.get("loss"), run.skill
    if short is None or run.has(*STARVED_BY) or run.first_nonfinite is not None or run.get("rate").tail() == 0:
        return
    path, head, tail = value(short, "path", 0.0), loss.head(), loss.tail()
    kept = [v for v in (skill, tail / head if head and tail and head > 0 else None) if v is not None]
    straight = value(short, "cosine", 0.0) >= STRAIGHT
    stands = still is not None and path <= (BLIND if skill is None else PATH) and min(kept, default=0.0) >= STILL
    if not kept or not (stands or (straight and min(kept) >= HALF)):
        return
    yield Claim(
        cause="learning_rate_too_low",
        failure_type="optimizer_instability",
        layer_name=None,
        step=short.step,
        predicts={"loss_plateau": FOREVER},
        evidence_for=(short,) if still is None else (short, still),
        remedy=REMEDY,
        summary=f"all updates together moved the weights by {path:.2%}",
        refuted_by=REFUTED_BY,
        strength=min(1.0, STRENGTH + math.log10(PATH / max(path, 1e-9))),
    )
