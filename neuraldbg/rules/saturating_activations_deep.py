"""Saturating activations, deep

What it is
    Many sigmoid or tanh layers in a row. Each multiplies the gradient by its derivative (at most 1/4 for the
    sigmoid), so next to nothing reaches the first layers, although no single layer is saturated.

How it looks
    The gradient shrinks by a constant factor per layer over six or more bounded layers, the output is nearly the
    same for every input, and the loss stays at chance.

What speaks against it
    A loss that falls; weights that shrink the signal by a decade per layer; a norm over one value; inputs that
    saturate the first layer.

What to do
    Use a function that does not shrink: torch.nn.GELU() or ReLU, with normalisation or residual connections.

Reference
    Hochreiter, 1991; Glorot, Bengio, "Understanding the difficulty of training deep feedforward networks", 2010.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning, value
from neuraldbg.run import Run

MANY = 5  # bounded layers; six and more in the runs that failed
USUAL_SLOPE = 0.3  # decades per layer; steeper slopes occur in healthy runs, but not with a loss at chance
BOUNDED = ("sigmoid", "tanh")


def saturating_activations_deep(run: Run) -> Iterator[Claim]:
    shrinks = next(lasting(run, "vanishing_with_depth"), None)
    if shrinks is None or not not_learning(run) or run.has("small_weights", "norm_over_one"):
        return
    bounded = [name for name in run.facts.forward_order if _bounded(run, name)]
    count = max(value(shrinks, "bounded_layers", 0.0), float(len(bounded)))
    if count < MANY:
        return
    slope = abs(value(shrinks, "slope", USUAL_SLOPE))
    yield Claim(
        cause="saturating_activations_deep",
        failure_type="vanishing_gradients",
        layer_name=bounded[0] if bounded else shrinks.layer_name,
        step=shrinks.step,
        predicts=STARVED,
        evidence_for=(shrinks, *lasting(run, "constant_output", "loss_plateau")),
        remedy="replace the hidden sigmoid/tanh by ReLU or GELU, or normalise between the layers",
        summary=f"the gradient falls {10**slope:.3g}-fold per layer over {count:.0f} bounded layers",
        refuted_by="the same depth with ReLU and He initialisation that stays at chance as well",
        strength=max(0.0, slope - USUAL_SLOPE) + 0.3,
    )


def _bounded(run: Run, name: str) -> bool:
    module = run.facts.module(name)
    return module is not None and module.activation in BOUNDED and module.position != "output"
