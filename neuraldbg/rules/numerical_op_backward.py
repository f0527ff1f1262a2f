"""Numerical operation, backward

What it is
    The forward pass and the loss are finite, and the derivative is not: a square root or a norm at zero, or the
    branch of torch.where that was not taken.

How it looks
    The first non-finite place is a gradient, in one step, without any growth before it and in float32.

What speaks against it
    Gradients that grew over the steps before; float16 near its limit; a scaler that skips the step.

What to do
    Keep the root away from zero: torch.sqrt(squared.sum(1) + 1e-8)

Reference
    pytorch/pytorch issue 2421 (the derivative of norm and sqrt at zero).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import value
from neuraldbg.rules._nonfinite import PREDICTS, first_place, half, where
from neuraldbg.run import Run

USUAL_LG = 1.0  # decades of growth in the steps before; a derivative that fails at one point needs none
SMOOTH = ("relu", "leaky", "sigmoid", "tanh", "softmax", "glu")  # their derivatives are finite everywhere


def numerical_op_backward(run: Run) -> Iterator[Claim]:
    bad = first_place(run, "nonfinite_gradient")
    if bad is None or half(bad) or value(bad, "growth_lg", 0.0) > USUAL_LG:
        return
    if bad.metadata.get("forward_finite") is False or bad.metadata.get("loss_finite") is False:
        return
    if any(e.order <= bad.order for e in run.all("function_growth")):
        return  # the derivative of values that the forward pass has made huge: they are to blame
    known = bad.metadata.get("operator") is not None
    yield Claim(
        cause="numerical_op_backward",
        failure_type="exploding_gradients",
        layer_name=bad.layer_name if known else culprit(run, bad.layer_name),
        step=bad.step,
        predicts=PREDICTS,
        evidence_for=(bad, *run.all("nonfinite_weight", "loss_nonfinite")),
        remedy="add a small constant under the root or norm, or mask the argument before torch.where, not after it",
        summary=where(bad) + "forward pass and loss are finite, the derivative is not",
        refuted_by="a non-finite value in the forward pass of this step",
        exact=True,
    )


def culprit(run: Run, last: str | None) -> str | None:
    """All layers below the place are non-finite; the place is the next module of no parameters, where there is one."""
    order = run.facts.forward_order
    if last not in order:
        return last
    for name in order[order.index(last) + 1 :]:
        module = run.facts.module(name)
        if module is not None and module.parameters == 0 and module.activation not in SMOOTH:
            return name
    return last
