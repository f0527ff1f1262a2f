"""Division by zero

What it is
    Something is divided by nothing: the mean over an empty set, a node without neighbours, a norm that is zero.

How it looks
    A module turns finite inputs of moderate size into NaN, in one batch, while nothing grew before.

What speaks against it
    Very large values or infinities right before it: an overflow. Growth over the steps before.

What to do
    Guard the denominator: total / count.clamp_min(1)

Reference
    pyg-team/pytorch_geometric issue 61 (isolated nodes in the degree normalisation).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import value
from neuraldbg.rules._nonfinite import PREDICTS, attention_row, divides, first_forward, where
from neuraldbg.run import Run


def division_by_zero(run: Run) -> Iterator[Claim]:
    bad = first_forward(run)
    if bad is None or bad.metadata.get("inputs_finite") is False or attention_row(run, bad) or not divides(bad):
        return
    if "largest" not in bad.metadata and "operator" not in bad.metadata:
        return  # nothing is known of the values before: an overflow looks the same
    yield Claim(
        cause="division_by_zero",
        failure_type="data_anomaly",
        layer_name=bad.layer_name,
        step=bad.step,
        predicts=PREDICTS,
        evidence_for=(bad, *run.all("loss_nonfinite")),
        remedy="guard the denominator (clamp_min, an epsilon, self-loops), or drop empty samples from the batch",
        summary=where(bad) + _values(bad),
        refuted_by="a denominator that is not zero in this batch",
        exact=True,
    )


def _values(bad: SemanticEvent) -> str:
    """What the values show: the operator's own arguments where the replay saw them."""
    if bad.metadata.get("detail") == "empty":
        return "it is taken over nothing"
    if bad.metadata.get("detail") == "zero_divisor":
        return "the divisor holds zeros"
    return f"finite inputs give NaN although no value is above {value(bad, 'largest', 0.0):.3g}"
