"""Attention mask, all positions

What it is
    A row of the attention mask hides every position. The softmax over minus infinity alone is NaN.

How it looks
    The first non-finite value is NaN in the output of a softmax or an attention layer, in whole rows, in a batch with
    an empty (fully padded) sample.

What speaks against it
    Masks of minus infinity are right as long as each row keeps one visible position. Infinities in the scores.

What to do
    Keep one position visible: mask[mask.all(-1)] = False

Reference
    pytorch/pytorch issue 41508 (NaN for rows that are fully masked).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.rules._nonfinite import PREDICTS, attention_row, first_place, where
from neuraldbg.run import Run


def attention_mask_all_inf(run: Run) -> Iterator[Claim]:
    bad = first_place(run, "nonfinite_activation")
    if bad is None or not attention_row(run, bad):
        return
    share = value(bad, "nan_share", 0.0)
    yield Claim(
        cause="attention_mask_all_inf",
        failure_type="data_anomaly",
        layer_name=bad.layer_name,
        step=bad.step,
        predicts=PREDICTS,
        evidence_for=(bad, *run.all("loss_nonfinite")),
        remedy="leave one position of every row visible, or drop samples that are padding only",
        summary=where(bad) + f"{share:.1%} of its output is NaN, in whole rows",
        refuted_by="a mask in which each row keeps a visible position",
        exact=True,
    )
