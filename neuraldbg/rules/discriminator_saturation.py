"""Discriminator saturation

What it is
    The discriminator tells real from generated with certainty. Its sigmoid sits at its limits, and what it passes
    back to the generator is multiplied by nearly zero.

How it looks
    Two optimizers; the last sigmoid of one network saturates, and the gradient that the other network's
    optimizer consumes falls by decades while the first one's does not.

What speaks against it
    One optimizer: a classifier's output is meant to saturate. A hidden function at its limits is another cause.

What to do
    Use the loss that does not saturate, on logits: loss_g = torch.nn.functional.softplus(-disc_logits).mean()

Reference
    Goodfellow et al., "Generative Adversarial Nets", 2014, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import lasting, value
from neuraldbg.run import Run

USUAL_LG = 1.6  # decades by which a healthy gradient falls at most

PREDICTS = {"vanishing_group": 1000, "vanishing_gradient": 1000, "zero_gradient": 1000, "loss_plateau": 1000}


def discriminator_saturation(run: Run) -> Iterator[Claim]:
    starved = next(lasting(run, "vanishing_group"), None)
    if starved is None or len(run.facts.optimizers) < 2:
        return
    judge = next((e for e in lasting(run, "saturation") if _judges(run, e)), None)
    if judge is None and run.has("saturation"):
        return  # something inside is pinned, not a judge's verdict
    found = tuple(e for e in (judge, starved) if e is not None)
    yield Claim(
        cause="discriminator_saturation",
        failure_type="vanishing_gradients",
        layer_name=judge.layer_name if judge else None,
        step=min(e.step for e in found),
        predicts=PREDICTS,
        evidence_for=found,
        remedy="use the non-saturating generator loss on logits, and balance the two learning rates",
        summary=f"the starved network's gradient fell {10 ** abs(value(starved, 'decay_lg', 2.5)):.3g}-fold",
        refuted_by="a generator's gradient that keeps its size",
        strength=max(0.0, abs(value(starved, "decay_lg", 2.5)) - USUAL_LG) / 2 if judge else 0.0,
    )


def _judges(run: Run, event: SemanticEvent) -> bool:
    """The sigmoid whose output goes straight into the loss."""
    if event.metadata.get("function", "sigmoid") != "sigmoid":
        return False
    return event.metadata.get("position") == "output" or not any(
        m.source == event.layer_name for m in run.facts.modules
    )
