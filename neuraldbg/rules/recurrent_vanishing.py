"""Recurrent vanishing

What it is
    The recurrent map has a gain far below one: the state forgets within a few steps, and no gradient reaches the
    early part of a sequence.

How it looks
    Before the first update the recurrent matrix of a plain recurrence shrinks the state to less than half at each
    step; the loss stays at chance.

What speaks against it
    A gated cell (LSTM, GRU), which carries its state past the matrix; a loss that falls, since not every task needs
    the early steps.

What to do
    Start with gain one, torch.nn.init.orthogonal_(rnn.weight_hh_l0), or use a gated cell: torch.nn.LSTM(inp, width)

Reference
    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning, value
from neuraldbg.run import Run

USUAL = 0.58  # rms x sqrt(width) of the usual start, uniform within 1 / sqrt(width)


def recurrent_vanishing(run: Run) -> Iterator[Claim]:
    decay = run.first("recurrent_decay")
    if decay is None or not not_learning(run):
        return
    gain = value(decay, "gain", USUAL / 2)
    yield Claim(
        cause="recurrent_vanishing",
        failure_type="vanishing_gradients",
        layer_name=decay.layer_name,
        step=decay.step,
        predicts=STARVED,
        evidence_for=(decay, *lasting(run, "loss_plateau", "vanishing_gradient", "constant_output")),
        remedy="start the recurrent matrix orthogonal with gain 1, or use a gated cell",
        summary=f"each step through time keeps about {gain:.2g} of the state",
        refuted_by="a loss that stays at chance with an orthogonal recurrent matrix too",
        strength=math.log10(USUAL / max(gain, 1e-3)),
    )
