"""Bootstrap divergence

What it is
    The targets are computed from the model itself (a value function, a teacher that is the student). Where the
    feedback has a gain above one, values, targets, loss and gradients run away together.

How it looks
    A quiet start; then the gradient grows by decades without turning round (cosine near +1) and the loss of a
    regression grows with it. The updates become large only after the gradient has.

What speaks against it
    Updates as large as the weights before the gradient grows; targets outside the loss's range; a gradient that
    contains an earlier one; a loss that falls while its gradient grows.

What to do
    Freeze the targets: with torch.no_grad(): target = reward + gamma * target_net(next_state).max(1).values

Reference
    van Hasselt et al., "Deep Reinforcement Learning and the Deadly Triad", 2018.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, lasting, value
from neuraldbg.run import Run

QUIET = 10  # steps; other runaways begin at once
FORWARD = 0.8  # cosine; overshooting has about -0.5
USUAL_LG = 1.8  # decades by which the gradient of a healthy run grows at most
REGRESSION = ("mse", "smooth_l1", "l1", "huber")
FIRST = 10.0  # times its head: a gradient that has grown so far before the updates did is not their doing
OTHER = ("rate_jump", "carried_gradient", "target_range", "unscaled_target", "recurrent_growth")


def bootstrap_divergence(run: Run) -> Iterator[Claim]:
    grown = next(lasting(run, "exploding_gradient", "loss_diverging", since=QUIET), None) or _ended(run)
    if grown is None or run.first(*OTHER, before=grown) or run.first("exploding_gradient", before=QUIET):
        return
    update = run.first("violent_update", before=grown)
    if update is not None and not _grew_first(run, update):
        return
    kind = (run.facts.loss_kind or "").lower()
    if kind and not any(name in kind for name in REGRESSION):
        return
    cosine = value(grown, "cosine", run.get("cosine").tail() or 0.0)
    ruined = tuple(lasting(run, *NONFINITE, "loss_diverging", since=grown.step - 5))
    if cosine < FORWARD or not ruined:
        return
    yield Claim(
        cause="bootstrap_divergence",
        failure_type="exploding_gradients",
        layer_name=None,
        step=grown.step,
        predicts={**BLOW_UP, "loss_spike": 1000, "dead_units": 1000, "saturation": 1000},
        evidence_for=(grown, *ruined),
        remedy="take the targets from a slowly updated copy under torch.no_grad(), and bound them",
        summary="after a quiet start the gradient grows in one direction together with the loss",
        refuted_by="a run with targets from a frozen copy that diverges as well",
        strength=max(0.0, value(grown, "growth_lg", 2.0) - USUAL_LG) / 2 + (cosine - FORWARD),
    )


def _ended(run: Run) -> SemanticEvent | None:
    """A runaway that ended in something not finite before its trend could be told."""
    bad = run.first("loss_nonfinite", "nonfinite_gradient", "nonfinite_weight", "nonfinite_activation")
    return bad if bad is not None and bad.step >= QUIET and value(bad, "growth_lg", 0.0) > USUAL_LG else None


def _grew_first(run: Run, update: SemanticEvent) -> bool:
    norms = run.get("gradient_norm")
    head, before = norms.head(), [v for s, v in norms.points if s <= update.step]
    return head is not None and bool(before) and before[-1] > FIRST * head
