"""Half-precision overflow

What it is
    A value passes the largest number that float16 can hold (65504) and becomes infinite: a loss scale that only
    grows, or activations too large for the format.

How it looks
    The first non-finite place is a float16 gradient or output, and the steps before come close to the limit. Or a
    GradScaler skips forty steps in a row: at no scale that it tries do the gradients fit.

What speaks against it
    A GradScaler that skips such steps and lowers its scale: that is how it finds the scale. A non-finite gradient
    far below the limit has another cause.

What to do
    Let the scaler skip: scaler = torch.amp.GradScaler(); scaler.scale(loss).backward(); scaler.step(optimizer)

Reference
    Micikevicius et al., "Mixed Precision Training", 2018.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import FOREVER, lasting, value
from neuraldbg.rules._nonfinite import SPREADS, half
from neuraldbg.run import Run

NEAR_LG = -1.0  # decades below the limit; failing runs come within 0.3 of it the step before
LARGE = 6550.0  # a tenth of float16's largest number

PREDICTS = {"loss_nonfinite": 5, **SPREADS}


def half_precision_overflow(run: Run) -> Iterator[Claim]:
    skipped = next(lasting(run, "all_skipped"), None)
    if skipped is not None:
        yield _no_scale(skipped)
    bad = run.first("nonfinite_gradient", "nonfinite_activation")
    if bad is None or bad is not run.first_nonfinite or not half(bad) or not _near(bad):
        return
    gradient = bad.symptom == "nonfinite_gradient"
    yield Claim(
        cause="half_precision_overflow",
        failure_type="exploding_gradients",
        layer_name=None if gradient else bad.layer_name,
        step=bad.step,
        predicts=PREDICTS,
        evidence_for=tuple(run.all(*PREDICTS)),
        remedy="use torch.amp.autocast with float32 weights and a GradScaler, which skips a step that overflows",
        summary="a float16 value passed 65504, the largest number of the format",
        refuted_by="the same step in float32 that is not finite either",
        exact=True,
    )


def _no_scale(skipped: SemanticEvent) -> Claim:
    """The scaler never finds a scale that the gradients fit in."""
    return Claim(
        cause="half_precision_overflow",
        failure_type="optimizer_instability",
        layer_name=None,
        step=skipped.step,
        predicts={"loss_plateau": FOREVER, "updates_stop": FOREVER},
        evidence_for=(skipped,),
        remedy="let the scale fall (GradScaler's backoff_factor is 0.5), or use bfloat16, which needs no scaler",
        summary=f"every step from {skipped.step} on was skipped, so nothing was learned",
        refuted_by="a step of the optimizer that was not skipped",
        exact=True,
    )


def _near(bad: SemanticEvent) -> bool:
    """Whether the step before came close to the limit of the format."""
    if bad.symptom == "nonfinite_gradient":
        return value(bad, "headroom_lg", -9.0) > NEAR_LG
    if bad.metadata.get("detail") == "overflow":
        return True  # the replay saw an operator make infinity of finite float16 values
    return value(bad, "largest", 0.0) > LARGE
