"""Missing-value sentinel

What it is
    A code for "no value", such as -9999, is read as a number among values of order one.

How it looks
    One far-out value, repeated, appears in the input; in the same step the loss and the gradient jump by decades. Or,
    after many batches without one, most batches hold it: then a norm at the entrance may hide it from the loss.

What speaks against it
    Far-out values that all differ; a code now and then that the model masks, so that nothing follows.

What to do
    Replace the code before normalising: x = torch.where(x == -9999, mean, x)

Reference
    NRCan/geo-deep-learning issue 68 (no-data values in rasters).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, lasting, value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.run import Run

SOON = 5  # steps in which loss, gradient or update have followed, or will not
DENSE, SPAN = 5, 8  # batches with the code among so many steps, after a baseline of 15 without one: a new source

PREDICTS = {**BLOW_UP, **STARVED, "loss_spike": SOON, "input_shift": 50, "dead_units": 50, "saturation": 50}
HARM = {"loss_spike": SOON, "exploding_gradient": SOON, "violent_update": SOON, "dead_units": 50, "loss_nonfinite": 50}


def missing_value_sentinel(run: Run) -> Iterator[Claim]:
    code = run.first("input_sentinel")
    if code is None:
        return
    harm = (*follows(run, code, HARM), *lasting(run, "loss_diverging", "loss_plateau", since=code.step))
    yield Claim(
        cause="missing_value_sentinel",
        failure_type="data_anomaly",
        layer_name=None,
        step=code.step,
        predicts=PREDICTS,
        evidence_for=(code, *harm),
        remedy="mask the code or fill it with the column's mean before normalising",
        summary=joined(
            f"the value {value(code, 'value', 0.0):g} appears {value(code, 'repeats', 2.0):.0f} times",
            where_in_data(code),
        ),
        refuted_by="a batch of this step without the repeated value",
        exact=True,
        outcome=bool(harm) or _dense(run, code),
    )


def _dense(run: Run, code: SemanticEvent) -> bool:
    """Whether the code came to stay: had it been as frequent before, the baseline would hold it."""
    same = {e.step for e in run.all("input_sentinel") if e.metadata.get("value") == code.metadata.get("value")}
    return sum(code.step <= step < code.step + SPAN for step in same) >= DENSE
