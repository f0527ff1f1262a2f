"""Input distribution shift

What it is
    The inputs change during training: another source, a broken sensor, a preprocessing step that was switched.

How it looks
    A feature's batch mean or scale leaves the range of the first batches by far, and the loss jumps or stays high
    from then on. Or the inputs leave that range altogether: they move by five of their own spreads, or become ten
    times as wide or narrow. A norm at the entrance then hides it from the training loss, while what it has learned
    about the first inputs is overwritten.

What speaks against it
    A moderate shift that the loss does not follow; inputs that are another watched model's outputs; one value repeated
    (a missing-value code) or batches of zeros, which are causes of their own.

What to do
    Compare the sources before mixing them: print(batch.mean(0), batch.std(0))

Reference
    Quionero-Candela et al., "Dataset Shift in Machine Learning", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, lasting, value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.run import Run

USUAL_Z = 11.0  # the furthest batch mean in healthy runs
SOON = 5  # steps in which loss, gradient or update have followed, or will not
APART = 5.0  # spreads between the old mean and the new: hardly a sample lies in both
WIDER = 10.0  # times as wide or narrow: the same in scale

HARM = {
    "loss_spike": SOON,
    "exploding_gradient": SOON,
    "violent_update": SOON,
    "loss_nonfinite": 50,
    "nonfinite_gradient": 50,
}


def input_distribution_shift(run: Run) -> Iterator[Claim]:
    shift = run.first("input_shift")
    if shift is None or any(
        e.step <= shift.step + 1 for e in run.all("input_sentinel", "zero_batch", "nan_input", "inf_input")
    ):
        return
    harm = (*follows(run, shift, HARM), *lasting(run, "loss_diverging", "loss_plateau", since=shift.step))
    if not harm and not _apart(run, shift):
        return
    z = abs(value(shift, "z", 30.0))
    yield Claim(
        cause="input_distribution_shift",
        failure_type="data_anomaly",
        layer_name=shift.layer_name,
        step=shift.step,
        predicts={**BLOW_UP, **STARVED, "loss_spike": SOON, "dead_units": 50, "saturation": 50, "attention_onehot": 50},
        evidence_for=(shift, *harm),
        remedy="normalise each source by its own statistics, and find out what changed in the data at this step",
        summary=joined(f"a feature's batch mean is {z:.0f} deviations off its baseline", where_in_data(shift)),
        refuted_by="inputs of the later batches that look like the first ones",
        strength=max(0.0, math.log10(max(z, 1.0) / USUAL_Z)),
    )


def _apart(run: Run, shift: SemanticEvent) -> bool:
    """Whether the new inputs and the old ones have next to nothing in common: the defect itself is seen exactly.

    Of several watched models one may feed another, and what a model gives changes as it learns.
    """
    if len(run.facts.models) > 1:
        return False
    scale = value(shift, "scale", 1.0)
    return value(shift, "spreads", 0.0) >= APART or scale >= WIDER or 0 < scale <= 1 / WIDER
