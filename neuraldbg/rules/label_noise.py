"""Label noise

What it is
    Labels contradict each other, or the inputs do not hold what tells the classes apart. There is a level below which
    no model can come, and the loss has reached it.

How it looks
    A classification loss that has settled between a seventh and nine tenths of chance, in a model that is wide enough.

What speaks against it
    A loss that still falls, a model that is linear or very narrow, a rate of zero, noise of small batches: their
    notes come first.

What to do
    Train on a hundred samples alone: losses that cannot be brought to zero there have labels that contradict each
    other. Look at the samples of the largest loss: losses.topk(20)

Reference
    Northcutt, Jiang, Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import settled
from neuraldbg.rules.batch_too_small import batch_too_small
from neuraldbg.rules.model_too_small import model_too_small
from neuraldbg.run import Run

CLASSES = ("nll", "bce", "bce_with_logits")
STRENGTH = 0.0  # the weakest of the notes: it is what is left


def label_noise(run: Run) -> Iterator[Claim]:
    """Advice: what is left to be said of a loss that has settled above zero."""
    level = settled(run)
    if level is None or run.facts.loss_kind not in CLASSES or run.has("rate_zero"):
        return
    if next(batch_too_small(run), None) is not None or next(model_too_small(run), None) is not None:
        return
    yield Claim(
        cause="label_noise",
        failure_type="data_anomaly",
        layer_name=None,
        step=0,
        remedy="train on a hundred samples alone: where their loss cannot go to zero, labels contradict each other",
        summary=f"the loss has settled at {level:.0%} of chance and nothing else is seen that would hold it there",
        refuted_by="a wider model, or a longer training, that ends lower",
        strength=STRENGTH,
        outcome=False,
        advice=True,
    )
