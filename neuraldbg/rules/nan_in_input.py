"""NaN in the input

What it is
    A batch holds NaN: an unmeasured value, a 0/0 in the preprocessing, a broken file.

How it looks
    The input of the model is not finite, before any module ran; the outputs, the loss and then the weights follow.

What speaks against it
    A model that masks such values itself: then nothing behind the input is touched.

What to do
    batch = torch.nan_to_num(batch), or drop the rows: batch[~batch.isnan().any(-1)]

Reference
    scikit-learn documentation, "Imputation of missing values".
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import NONFINITE, value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.rules._nonfinite import SPREADS
from neuraldbg.run import Run


def nan_in_input(run: Run) -> Iterator[Claim]:
    bad = run.first("nan_input")
    if bad is None or (run.first_nonfinite is not bad and run.first(*NONFINITE, before=bad)):
        return
    harm = tuple(e for e in run.all(*NONFINITE) if e.step >= bad.step)
    count = value(bad, "count", 0.0)
    yield Claim(
        cause="nan_in_input",
        failure_type="data_anomaly",
        layer_name=bad.layer_name,
        step=bad.step,
        predicts={"loss_nonfinite": 2, **SPREADS},
        evidence_for=(bad, *harm),
        remedy="clean the data: drop or impute such rows (torch.nan_to_num), and check batches with torch.isfinite",
        summary=joined(f"{count:.0f} value{'s' * (count > 1)} of the batch" if count else "", where_in_data(bad)),
        refuted_by="a batch of this step that is finite",
        exact=True,
        outcome=bool(harm),
    )
