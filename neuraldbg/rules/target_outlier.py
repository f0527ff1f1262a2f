"""Target outlier

What it is
    One target lies far outside all others (a unit error, a typing error), and a squared loss follows it.

How it looks
    A target fifty deviations off; in the same step the loss and the gradient jump, and the update that follows
    throws the weights off.

What speaks against it
    A jump of the loss without such a target; targets that are heavy-tailed from the start.

What to do
    Clip the target, or use a loss that grows linearly: criterion = torch.nn.SmoothL1Loss()

Reference
    Huber, "Robust Estimation of a Location Parameter", 1964.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, lasting, value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.run import Run

SOON = 3  # steps: the loss jumps in the same one, and the weights are thrown by the next

HARM = {"loss_spike": SOON, "exploding_gradient": SOON, "violent_update": SOON, "dead_units": 20, "loss_nonfinite": 20}


def target_outlier(run: Run) -> Iterator[Claim]:
    far = run.first("target_outlier")
    if far is None:
        return
    harm = (*follows(run, far, HARM), *lasting(run, "loss_diverging", "loss_plateau", since=far.step))
    yield Claim(
        cause="target_outlier",
        failure_type="data_anomaly",
        layer_name=None,
        step=far.step,
        predicts={**BLOW_UP, **STARVED, "loss_spike": SOON, "dead_units": 50, "saturation": 50},
        evidence_for=(far, *harm),
        remedy="correct or clip the target, or use SmoothL1Loss",
        summary=joined(f"one target is {value(far, 'z', 50.0):.0f} deviations off", where_in_data(far)),
        refuted_by="targets of this step within the range of the others",
        exact=True,
        outcome=bool(harm),
    )
