"""Half-precision underflow

What it is
    A number that keeps the training alive rounds to zero in float16: Adam's epsilon (1e-8 is below the smallest
    float16 number, 6e-8), its second moment, or the gradients themselves. Adam then divides zero by zero. Or the
    updates round to nothing: a bfloat16 weight does not change by less than 1/512 of itself.

How it looks
    Finite gradients, and weights that are non-finite right after the optimizer's step. Or weights in a half format
    that an optimizer holds, that get gradients and stay equal to the bit.

What speaks against it
    float32 or bfloat16 weights; an epsilon of 1e-4; a gradient that was not finite before.

What to do
    Keep float32 weights under autocast, or torch.optim.Adam(model.parameters(), eps=1e-4)

Reference
    google-deepmind/optax issue 1754; pytorch/pytorch issue 8860 (epsilon underflows in float16).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import lasting, value
from neuraldbg.rules._nonfinite import SPREADS, half, rounded_away
from neuraldbg.run import Run

SMALLEST = 6e-8  # of float16; anything below rounds to zero

PREDICTS = {"loss_nonfinite": 2, **SPREADS}


def half_precision_underflow(run: Run) -> Iterator[Claim]:
    stuck = next(lasting(run, "stuck_parameter"), None)
    if stuck is not None and rounded_away(stuck):
        yield _lost_updates(run, stuck)
    bad = run.first("nonfinite_weight")
    if bad is None or bad is not run.first_nonfinite or bad.metadata.get("gradient_finite") is False:
        return
    if not half(bad) or value(bad, "eps", 1.0) > SMALLEST:
        return
    yield Claim(
        cause="half_precision_underflow",
        failure_type="optimizer_instability",
        layer_name=bad.layer_name,
        step=bad.step,
        predicts=PREDICTS,
        evidence_for=(bad, *run.all("loss_nonfinite")),
        remedy="keep float32 weights (autocast with a GradScaler), or use eps=1e-4 with float16 parameters",
        summary=f"eps={value(bad, 'eps', 0.0):g} rounds to zero in float16, so the update divides by zero",
        refuted_by="the same step with eps=1e-4 that is not finite either",
        exact=True,
    )


def _lost_updates(run: Run, stuck: SemanticEvent) -> Claim:
    """Weights that are updated in a half format and do not move."""
    dtype, update = str(stuck.metadata["dtype"]), run.get("update").tail()
    size = f"; the others move by {update:.2g} of themselves at a step" if update else ""
    return Claim(
        cause="half_precision_underflow",
        failure_type="optimizer_instability",
        layer_name=stuck.layer_name,
        step=stuck.step,
        predicts={"loss_plateau": 1000, "slow_progress": 1000},
        evidence_for=(stuck,),
        remedy="keep float32 weights and compute in the half format (autocast), or round stochastically",
        summary=f"{value(stuck, 'share', 0.0):.0%} of the {dtype} parameters get gradients and never move{size}",
        refuted_by="the same weights in float32 that do not move either",
        exact=True,
    )
