"""Dead ReLU by a negative bias

What it is
    A bias far below zero in front of a ReLU keeps the units below zero for every sample, before the first update.
    They pass no gradient, so they can never come back.

How it looks
    At step 0 the mean of a layer's output is negative and as large as its whole signal, and the ReLU behind it is
    zero everywhere.

What speaks against it
    The same ratio in front of a layer that is not rectified; units that come alive; an input offset.

What to do
    Start the bias at zero: torch.nn.init.zeros_(layer.bias), or use torch.nn.LeakyReLU()

Reference
    facebookresearch/dlrm issue 368; Lu et al., "Dying ReLU and Initialization", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning, value
from neuraldbg.run import Run

USUAL = -0.88  # mean / rms of a healthy layer, at most
CERTAIN = 0.5  # a dead layer behind it and a loss at chance are two conditions more


def dead_relu_negative_bias(run: Run) -> Iterator[Claim]:
    bias = run.first("negative_bias")
    if bias is None:
        return
    dead = tuple(lasting(run, "dead_units", within=10))
    if not not_learning(run) and not any(value(e, "share", 0.0) > 0.9 for e in dead):
        return
    yield Claim(
        cause="dead_relu_negative_bias",
        failure_type="dead_neurons",
        layer_name=bias.layer_name,
        step=bias.step,
        predicts={**STARVED, "dead_units": 10},
        evidence_for=(bias, *dead, *lasting(run, "loss_plateau")),
        remedy="start the biases at zero, re-initialise the dead units, or use LeakyReLU",
        summary=f"mean / rms of the pre-activation is {value(bias, 'ratio', -1.0):.2f}",
        refuted_by="units that become active when the bias is set to zero",
        strength=CERTAIN + max(0.0, USUAL - value(bias, "ratio", -1.0)),
    )
