"""Representation collapse

What it is
    The loss is brought to its minimum by giving the same output for every sample: two views are pulled together and
    nothing pulls different samples apart.

How it looks
    In the course of the training, not from its start, the spread of the output over the samples falls to nothing,
    while the loss falls all the way. There is no target that a constant could miss.

What speaks against it
    A loss against targets: there a constant output is no minimum, and something else made it. Large updates, dead
    units or a gradient of zero before it.

What to do
    Stop the gradient on one side, loss = distance(predictor(z1), z2.detach()), or add negatives or a variance term:
    torch.relu(1 - z.std(0)).mean()

Reference
    Chen and He, "Exploring Simple Siamese Representation Learning", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import lasting, value
from neuraldbg.run import Run

FELL = 0.1  # of the first loss is left at most: the collapse is what brought it down
BEFORE = ("violent_update", "dead_units", "zero_gradient", "saturation", "zero_batch", "input_shift")
STRENGTH = 0.3  # of any note without a calibration: its confidence stays below one half


def representation_collapse(run: Run) -> Iterator[Claim]:
    """A note, which warns: the training did what its loss asks for."""
    same = next(lasting(run, "constant_output"), None)
    loss = run.get("loss")
    head, tail = loss.head(), loss.tail()
    if same is None or same.metadata.get("at_start") is not False or len(run.get("skill")):
        return
    if head is None or tail is None or not 0 <= tail < FELL * head or run.first(*BEFORE, before=same) is not None:
        return
    yield Claim(
        cause="representation_collapse",
        failure_type="optimizer_instability",
        layer_name=same.layer_name,
        step=same.step,
        evidence_for=(same,),
        remedy="detach one side of the pair and predict it, or add a term that keeps different samples apart",
        summary=f"the output varies by 1e{value(same, 'spread_lg', -4.0):.0f} of its size over the samples,"
        f" and {tail / head:.1g} of the first loss is left",
        refuted_by="targets of this loss that are the same for every sample",
        strength=STRENGTH,
        outcome=False,
    )
