"""Unbounded pre-activation

What it is
    What goes into a bounded function keeps growing in training, until the function sits at its limit for every
    input and passes no gradient: an actor whose tanh actions stick at plus or minus one.

How it looks
    A tanh or sigmoid whose output feeds another part of the model fills up after the start, to nearly all outputs
    at the limits.

What speaks against it
    Saturation of the first layer by raw inputs from step 0 on; a classifier's last layer, which is meant to
    saturate; a violent update at the start.

What to do
    Penalise the size, or normalise before the function: loss = loss + 1e-3 * preactivation.square().mean()

Reference
    Lillicrap et al., "Continuous control with deep reinforcement learning", 2016; floodsung/DDPG issue 6.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import behind_rectifier, lasting, not_learning, value
from neuraldbg.run import Run

PINNED = 0.5  # share at the limits; healthy hidden layers have 0.09 at most
FULL = 0.8  # a single network that learns may fill a layer half; an actor's single output is lost at once

PREDICTS = {
    "vanishing_gradient": 500,
    "vanishing_group": 500,
    "zero_gradient": 500,
    "loss_plateau": 500,
    "saturation": 500,
}


def unbounded_preactivation(run: Run) -> Iterator[Claim]:
    for pinned in lasting(run, "saturation"):
        if value(pinned, "share", 0.0) < PINNED or not _inside(run, pinned):
            continue
        if pinned.metadata.get("at_start") is True and not behind_rectifier(run, pinned.layer_name):
            continue  # raw inputs reach it, and they are to blame
        if run.first("violent_update", "rate_jump", before=pinned) and len(run.facts.optimizers) < 2:
            continue
        share = value(pinned, "share", 0.0)
        if share < FULL and len(run.facts.optimizers) < 2 and not not_learning(run):
            continue
        yield Claim(
            cause="unbounded_preactivation",
            failure_type="saturated_activations",
            layer_name=pinned.layer_name,
            step=pinned.step,
            predicts=PREDICTS,
            evidence_for=(pinned, *lasting(run, "vanishing_group", "vanishing_gradient", since=pinned.step)),
            remedy="penalise large pre-activations or normalise them, lower this part's rate, normalise its inputs",
            summary=f"{share:.0%} of its outputs sit at the limits, and stay there",
            refuted_by="outputs that leave the limits when the batch is scaled down",
            strength=max(0.0, share - PINNED),
        )
        return


def _inside(run: Run, event: SemanticEvent) -> bool:
    """Whether something in the model consumes this output; a last layer may saturate, and a judge is another cause."""
    if any(m.source == event.layer_name for m in run.facts.modules):
        return True
    if event.metadata.get("position") == "output":
        return len(run.facts.optimizers) > 1 and event.metadata.get("function") == "tanh"
    order = run.facts.forward_order
    last = bool(order) and order[-1] == event.layer_name
    return not last or event.metadata.get("function") == "tanh"
