"""Missing zero_grad

What it is
    The gradients are never cleared, so each update uses the sum of all gradients so far. It acts like a momentum
    of one: after a good start the loss swings with growing amplitude.

How it looks
    An optimizer consumes a gradient that contains one it consumed before, step after step. The gradient norm
    grows, and tens to hundreds of steps later the loss oscillates or diverges. With nine in ten of the parameters
    it is told without waiting for that.

What speaks against it
    Accumulation over micro-batches clears the gradient after each update; several optimizers that share
    parameters leave gradients of others in a buffer. Neither consumes a gradient twice. A gradient carried on in
    some parameters only, which no harm follows, is a note.

What to do
    Clear before each backward pass: optimizer.zero_grad()

Reference
    PyTorch documentation, "Zeroing out gradients in PyTorch"; wenet-e2e/wekws issues 72 and 73.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, FOREVER, follows, loss_ruined, value
from neuraldbg.run import Run

ALL = 0.9  # of the parameters: nobody accumulates over updates on purpose, so this harms also where the loss hides it

PREDICTS = {**BLOW_UP, "loss_spike": FOREVER, "loss_plateau": FOREVER, "dead_units": FOREVER, "saturation": FOREVER}
HARM = {
    "loss_spike": FOREVER,
    "loss_oscillating": FOREVER,
    "loss_diverging": FOREVER,
    "exploding_gradient": FOREVER,
    "violent_update": FOREVER,
}


def missing_zero_grad(run: Run) -> Iterator[Claim]:
    carried = run.first("carried_gradient")
    if carried is None:
        return
    harm = {id(e): e for e in (*follows(run, carried, HARM), *loss_ruined(run, since=max(0, carried.step - 1)))}
    yield Claim(
        cause="missing_zero_grad",
        failure_type="optimizer_instability",
        layer_name=None,
        step=carried.step,
        predicts=PREDICTS,
        evidence_for=(carried, *harm.values()),
        remedy="call optimizer.zero_grad() before each backward pass",
        summary=f"{value(carried, 'share', 1.0):.0%} of the parameters use a gradient again that was used before",
        refuted_by="a call of zero_grad() between two updates",
        exact=True,
        outcome=bool(harm) or value(carried, "share", 0.0) >= ALL,
    )
