"""Warm-up missing

What it is
    A deep or post-norm model is trained with Adam at its peak rate from the first step on. Adam's first updates
    are as large as the rate allows whatever the gradient, and the norms pass them all down: the model is thrown
    into a state in which every position gets the same output.

How it looks
    Updates of a fifth of the weights at step 0 in a transformer that normalises after the sum; then constant
    outputs, dead feed-forward units and a loss at chance.

What speaks against it
    A rate that was ramping up; a shallow model, where the rate itself is too high; a pre-norm model.

What to do
    Ramp the rate: torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=500), or normalise before the sum.

Reference
    Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import adaptive, lasting, not_learning, value
from neuraldbg.rules.learning_rate_too_high import HEAD, PREDICTS, USUAL_LG
from neuraldbg.run import Run

CERTAIN = 0.3  # the structure is one more condition that the rate alone does not need


def warmup_missing(run: Run) -> Iterator[Claim]:
    update = run.first("violent_update")
    if update is None or update.step > HEAD or update.metadata.get("ramping") is True:
        return
    if "post_norm" not in run.facts.structure or not adaptive(run) or run.first("rate_jump", before=update):
        return
    harm = tuple(lasting(run, "constant_output", "loss_plateau", "loss_diverging", "dead_units", since=update.step))
    if not harm or not (not_learning(run) or any(e.symptom == "constant_output" for e in harm)):
        return
    yield Claim(
        cause="warmup_missing",
        failure_type="optimizer_instability",
        layer_name=None,
        step=update.step,
        predicts=PREDICTS,
        evidence_for=(update, *harm),
        remedy="ramp the rate up over the first few hundred steps, or move the norms before the sum (pre-norm)",
        summary="a post-norm model takes its first Adam steps at the full rate",
        refuted_by="a run with a warm-up of 500 steps that ends the same way",
        strength=max(0.0, value(update, "update_lg", -0.7) - USUAL_LG) + CERTAIN,
    )
