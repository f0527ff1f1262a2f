"""Zeroed inputs

What it is
    Batches arrive as zeros: a copy to the device that lost its data, a buffer that was not filled, a failed read.

How it looks
    Every element of some batches is exactly zero while the others are not; at these the loss is at chance.

What speaks against it
    Zeros in single samples (padding) or in all batches.

What to do
    Check after the copy: assert batch.abs().sum() > 0

Reference
    pytorch/pytorch issue 84803 (transfers between devices that lose their data).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.rules._data import joined, where_in_data
from neuraldbg.run import Run

RARE = 0.005  # share of the batches; one empty batch in a long run does no harm


def zeroed_inputs(run: Run) -> Iterator[Claim]:
    zeros = tuple(run.all("zero_batch"))
    if not zeros:
        return
    spikes = tuple(e for e in run.all("loss_spike", "constant_output") if any(abs(e.step - z.step) <= 1 for z in zeros))
    share = max(value(e, "share", 0.0) for e in zeros)
    yield Claim(
        cause="zeroed_inputs",
        failure_type="data_anomaly",
        layer_name=None,
        step=zeros[0].step,
        predicts={"loss_spike": 1000, "constant_output": 1000, "loss_oscillating": 1000, "dead_units": 1000},
        evidence_for=(*zeros, *spikes),
        remedy="repair the transfer or the reader, and check each batch after the copy",
        summary=joined(f"{share:.1%} of the batches hold nothing but zeros" if share else "", where_in_data(zeros[0])),
        refuted_by="the same batch read again that is not zero",
        exact=True,
        outcome=bool(spikes) or share > RARE or len(zeros) > 1,
    )
