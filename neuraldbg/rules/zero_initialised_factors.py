"""Zero-initialised factors

What it is
    Two factors of a product both start at zero (the two matrices of a low-rank adapter, a gate and its branch).
    The gradient of each is a multiple of the other, so both stay where they are.

How it looks
    Two weights in a row that are exactly zero, and a gradient of exactly zero for both.

What speaks against it
    One factor at zero and the other not: that is the usual start of an adapter or a residual branch.

What to do
    Start one of them at random: torch.nn.init.kaiming_uniform_(adapter.down.weight)

Reference
    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import STARVED, lasting, value
from neuraldbg.run import Run

ALL = 0.9  # of a layer's units


def zero_initialised_factors(run: Run) -> Iterator[Claim]:
    zero = run.first("zero_factors")
    if zero is None or run.has("identical_units"):
        return  # where the whole net starts alike, a pair of zero factors is a part of that
    cut = (*lasting(run, "zero_gradient", "loss_plateau"), *_silenced(run, zero))
    yield Claim(
        cause="zero_initialised_factors",
        failure_type="vanishing_gradients",
        layer_name=zero.layer_name,
        step=zero.step,
        predicts={**STARVED, "stuck_parameter": 500},
        evidence_for=(zero, *cut),
        remedy="start only one of the two factors at zero",
        summary="both factors are zero, so the gradient of each is zero",
        refuted_by="a gradient of one of the two that is not zero",
        exact=True,
        outcome=bool(cut),
    )


def _silenced(run: Run, zero: SemanticEvent) -> list[SemanticEvent]:
    """A layer right behind the two that is dead for good: a branch that is lost while the rest learns around it."""
    behind = (zero.layer_name, zero.metadata.get("other"))
    dead = lasting(run, "dead_units")
    return [e for e in dead if e.metadata.get("previous") in behind and value(e, "share", 0.0) >= ALL]
