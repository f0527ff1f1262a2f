"""Infinity in the input

What it is
    A batch holds an infinite value: a logarithm of zero or a division by zero in the preprocessing.

How it looks
    The input of the model is not finite, before any module ran; the outputs, the loss and then the weights follow.

What speaks against it
    A model that masks such values itself: then nothing behind the input is touched.

What to do
    batch = batch.clamp(-1e6, 1e6), or drop the rows: batch[batch.isfinite().all(-1)]

Reference
    IEEE 754-2019, section 7.3 (division by zero gives infinity).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import NONFINITE, value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.rules._nonfinite import SPREADS
from neuraldbg.run import Run


def inf_in_input(run: Run) -> Iterator[Claim]:
    bad = run.first("inf_input")
    if bad is None or (run.first_nonfinite is not bad and run.first(*NONFINITE, before=bad)):
        return
    harm = tuple(e for e in run.all(*NONFINITE) if e.step >= bad.step)
    count = value(bad, "count", 0.0)
    yield Claim(
        cause="inf_in_input",
        failure_type="data_anomaly",
        layer_name=bad.layer_name,
        step=bad.step,
        predicts={"loss_nonfinite": 2, **SPREADS},
        evidence_for=(bad, *harm),
        remedy="find the division or logarithm in the preprocessing, and clip or drop such rows",
        summary=joined(f"{count:.0f} value{'s' * (count > 1)} of the batch" if count else "", where_in_data(bad)),
        refuted_by="a batch of this step that is finite",
        exact=True,
        outcome=bool(harm),
    )
