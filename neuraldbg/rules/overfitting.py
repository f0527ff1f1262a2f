"""Overfitting

What it is
    The model learns the training samples by heart. From some step on it gets better on them and worse on all others.

How it looks
    The validation loss (dbg.record_validation_loss) climbs by a tenth and more above its best and stays there, while
    the training loss goes on falling.

What speaks against it
    A training loss that rises as well; then something broke. Validation data of another kind than the training data:
    its loss is high from the start. A loss can rise while the accuracy still improves: look at both.

What to do
    Keep the weights of the best validation, train on more data or augment it, or raise the regularisation:
    torch.optim.AdamW(model.parameters(), weight_decay=0.1), torch.nn.Dropout(0.5)

Reference
    Prechelt, "Early Stopping - But When?", 1998.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.run import Run

STRENGTH = 0.3  # of any note without a calibration: its confidence stays below one half


def overfitting(run: Run) -> Iterator[Claim]:
    """Nothing is wrong with the training itself: a note, which warns."""
    rise = run.first("validation_rise")
    if rise is None:
        return
    best, last = value(rise, "best", 0.0), value(rise, "last", 0.0)
    yield Claim(
        cause="overfitting",
        failure_type="optimizer_instability",
        layer_name=None,
        step=rise.step,
        evidence_for=(rise,),
        remedy=f"stop at step {rise.step}, where the validation loss was best; more data, or more regularisation",
        summary=f"the validation loss rose from {best:.3g} to {last:.3g} while the training loss fell" if best else "",
        refuted_by="a measure of quality on the validation data that still improves",
        strength=STRENGTH,
        outcome=False,
    )
