"""Normalisation over one feature

What it is
    A norm divides over a single value (one feature, or one sample in training). The result is zero, or the bias,
    whatever the input, and no gradient passes.

How it looks
    A norm of size one whose output is the same for every sample, and a gradient that ends there.

What speaks against it
    A norm over one value in one batch only, such as a last batch of one sample.

What to do
    Put the norm before the last projection: torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 1))

Reference
    pytorch/pytorch issues 12968 and 108956.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting
from neuraldbg.run import Run


def normalisation_over_one_feature(run: Run) -> Iterator[Claim]:
    norm = run.first("norm_over_one")
    if norm is None:
        return
    harm = tuple(lasting(run, *STARVED))
    yield Claim(
        cause="normalisation_over_one_feature",
        failure_type="vanishing_gradients",
        layer_name=norm.layer_name,
        step=norm.step,
        predicts=STARVED,
        evidence_for=(norm, *harm),
        remedy="do not normalise over a dimension of size one: move the norm before the last projection",
        summary="a single value minus its own mean is zero for every input",
        refuted_by="an output of the norm that differs between samples",
        exact=True,
        outcome=bool(harm),
    )
