"""Clamped loss

What it is
    The loss passes through a clamp that holds: `loss.clamp(max=10)` against spikes, say. A clamp passes no gradient
    to what it holds, so the model gets none.

How it looks
    The gradient of the last layer is exactly zero and the loss stays where it is, although nothing stands between
    that layer and the loss that could be saturated or dead.

What speaks against it
    An activation after the last layer: it may cut the gradient itself. A loss that stays because it has reached its
    floor, as a hinge does.

What to do
    Clip the gradient, not the loss: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

Reference
    PyTorch, torch.clamp: the gradient is zero outside of [min, max].
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.run import Run


def clamped_loss(run: Run) -> Iterator[Claim]:
    layers = [m for m in run.facts.modules if m.order is not None and (m.parameters or m.activation)]  # no containers
    last = max(layers, key=lambda m: m.order or 0, default=None)
    if last is None or last.activation or not last.trainable:
        return
    cut, stuck = run.first("zero_gradient", layer=last.name), run.first("loss_plateau")
    if cut is None or stuck is None:
        return
    yield Claim(
        cause="clamped_loss",
        failure_type="vanishing_gradients",
        layer_name=last.name,
        step=cut.step,
        predicts={"loss_plateau": 1000},  # it is said at the end, which may be far
        evidence_for=(cut, stuck),
        summary="no activation stands between the last layer and the loss, and yet no gradient comes back",
        remedy="clip the gradient, not the loss: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        refuted_by="a gradient that stays zero without the clamp",
        exact=True,  # a gradient of exactly zero needs no threshold
    )
