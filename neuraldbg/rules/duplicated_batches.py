"""Duplicated batches

What it is
    The same samples come again and again: data-loader workers that share one random state, a generator that is
    reset at each epoch. The model learns the few batches by heart.

How it looks
    Two or more distinct batches, and most batches equal one of the few before them, to the bit.

What speaks against it
    Training on the whole set at each step: there is only one batch then. Several epochs over a small set.

What to do
    Seed each worker: DataLoader(..., worker_init_fn=lambda i: numpy.random.seed(torch.initial_seed() % 2**32))

Reference
    pytorch/pytorch issue 5059 (workers that share the NumPy seed).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.run import Run


def duplicated_batches(run: Run) -> Iterator[Claim]:
    again = run.first("repeated_batch")
    if again is None:
        return
    distinct, seen = value(again, "distinct", 0.0), value(again, "seen", 0.0)
    yield Claim(
        cause="duplicated_batches",
        failure_type="data_anomaly",
        layer_name=None,
        step=again.step,
        predicts={"slow_progress": 1000, "loss_plateau": 1000},
        evidence_for=(again,),
        remedy="seed every worker differently (worker_init_fn, generator) and anew in each epoch",
        summary=f"{distinct:.0f} distinct batches in {seen:.0f}" if seen else "",
        refuted_by="batches that differ in one element",
        exact=True,
    )
