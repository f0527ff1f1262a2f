"""Recurrent explosion

What it is
    The recurrent map has a gain above one: the state, and the gradient through time, grow exponentially with the
    length of the sequence.

How it looks
    In the first forward pass the output of a recurrent layer is many decades larger than its input; one or two
    updates later the weights are not finite.

What speaks against it
    A bounded cell (tanh, LSTM, GRU), whose state cannot grow; short sequences; a loss that falls.

What to do
    Start with gain one and clip: torch.nn.init.orthogonal_(rnn.weight_hh_l0); torch.nn.utils.clip_grad_norm_(..., 1.0)

Reference
    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, lasting, value
from neuraldbg.run import Run

USUAL_LG = 1.0  # decades; healthy recurrent states stay near the size of their input

PREDICTS = {**BLOW_UP, "loss_spike": 50, "loss_plateau": 1000, "dead_units": 1000, "constant_output": 1000}


def recurrent_explosion(run: Run) -> Iterator[Claim]:
    growth = run.first("recurrent_growth")
    if growth is None:
        return
    harm = tuple(lasting(run, *NONFINITE, "loss_diverging", "exploding_gradient", "loss_plateau", since=growth.step))
    if not harm:
        return
    rms = value(growth, "rms_lg", 3.0)
    yield Claim(
        cause="recurrent_explosion",
        failure_type="exploding_gradients",
        layer_name=growth.layer_name,
        step=growth.step,
        predicts=PREDICTS,
        evidence_for=(growth, *harm),
        remedy="start the recurrent matrix orthogonal with gain 1 (or use a gated cell), and clip the gradient",
        summary=f"the state grows to 10^{rms:.0f}",
        refuted_by="a state that stays as large as its input over the whole sequence",
        strength=max(0.0, min(1.0, (rms - USUAL_LG) / 4)),
    )
