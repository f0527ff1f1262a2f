"""Stale running statistics

What it is
    A batch norm normalises by the batch in training and by its running statistics in evaluation. Where these have not
    caught up (a momentum near zero, too few updates, data of two kinds), the model that is evaluated is another one.

How it looks
    The training is in order, and at its end the rms of a batch norm's input is more than twice, or less than half, of
    what its running mean and variance stand for. Validation is far worse than training from the start.

What speaks against it
    A batch norm in eval mode, which uses the running statistics in training too.

What to do
    Keep the default momentum: nn.BatchNorm1d(64, momentum=0.1); or compute them anew before evaluating:
    torch.optim.swa_utils.update_bn(loader, model)

Reference
    Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.run import Run

STRENGTH = 0.3  # of any note without a calibration: its confidence stays below one half


def stale_statistics(run: Run) -> Iterator[Claim]:
    """Nothing is wrong with the training itself: a note, which warns."""
    stale = run.first("stale_statistics")
    if stale is None:
        return
    batch, running = value(stale, "batch", 0.0), value(stale, "running", 0.0)
    yield Claim(
        cause="stale_statistics",
        failure_type="optimizer_instability",
        layer_name=stale.layer_name,
        step=stale.step,
        evidence_for=(stale,),
        remedy="use the default momentum of 0.1, or torch.optim.swa_utils.update_bn(loader, model) before evaluating",
        summary=f"the rms of its input is {batch:.3g} in training, its running statistics stand for {running:.3g}",
        refuted_by="an evaluation that is as good as the training",
        strength=STRENGTH,
        outcome=False,
    )
