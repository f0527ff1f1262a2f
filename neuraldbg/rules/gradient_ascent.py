"""Gradient ascent

What it is
    The loss has the wrong sign, so that the training maximises what it should minimise.

How it looks
    The loss operator's own loss rises from the first steps on, steadily, while the gradient keeps its direction
    (cosine near +1) and the updates are of the usual size. Where the graph shows that backward starts from the
    negated loss, it is enough that the loss gets worse, however unsteadily.

What speaks against it
    A quiet start before the rise: then the targets run away. A gradient that changes its sign: then the rate is
    too high. An adversary, which maximises one of its losses on purpose, beside another optimizer. A negated loss
    that gets no worse, because something else turns the sign back.

What to do
    Remove the minus, or negate a score that is to be maximised: loss = -log_likelihood.mean()

Reference
    Bengio, "Practical Recommendations for Gradient-Based Training of Deep Architectures", 2012, section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, loss_ruined, value
from neuraldbg.run import Run, median

EARLY = 0.1  # of the run: a sign is wrong from the first step on
STEADY = 0.9  # share of rising points
TIMES = 3.0  # the last loss over the first
FORWARD = 0.5  # cosine of successive gradients; overshooting has a negative one


def gradient_ascent(run: Run) -> Iterator[Claim]:
    negated = run.first("negated_loss")
    if negated is not None:
        yield from _negated(run, negated)
        return
    grown = run.first("loss_diverging", "exploding_gradient")
    skill = run.get("skill")
    points = skill.values
    if grown is None or len(points) < 10 or len(run.facts.optimizers) > 1:
        return
    lowest = points.index(min(points))
    rising = sum(b > a for a, b in pairwise(points)) / (len(points) - 1)
    if lowest > EARLY * len(points) or rising < STEADY or points[-1] < TIMES * points[0]:
        return
    cosine = value(grown, "cosine", run.get("cosine").tail() or 0.0)
    if cosine < FORWARD or run.first("violent_update", "rate_jump", "carried_gradient", "target_range", before=grown):
        return
    yield Claim(
        cause="gradient_ascent",
        failure_type="optimizer_instability",
        layer_name=None,
        step=skill.steps[lowest],
        predicts={**BLOW_UP, **STARVED, "dead_units": 1000, "saturation": 1000},
        evidence_for=(grown,),
        remedy="flip the sign of the loss (an optimizer minimises; maximise with loss = -objective)",
        summary=f"the loss rises at {rising:.0%} of the steps, from the start on",
        refuted_by="a run with the loss negated that rises as well",
        strength=min(1.0, math.log10(points[-1] / max(points[0], 1e-12))),
    )


def _negated(run: Run, negated: SemanticEvent) -> Iterator[Claim]:
    """The graph shows the sign: backward starts from minus a loss. An adversary does so on purpose, beside another."""
    skill = run.get("skill")
    before = [v for s, v in skill.points if s < negated.step][-10:] or list(skill.values[:3])
    worse = bool(before) and (skill.tail(5) or 0.0) > TIMES / 2 * (median(before) or 0.0)
    ruined = loss_ruined(run, since=negated.step)
    if len(run.facts.optimizers) > 1 or not (worse or ruined):
        return
    yield Claim(
        cause="gradient_ascent",
        failure_type="optimizer_instability",
        layer_name=None,
        step=negated.step,
        predicts={**BLOW_UP, **STARVED, "dead_units": 1000, "saturation": 1000, "loss_spike": 1000},
        evidence_for=(negated, *ruined),
        remedy="flip the sign of the loss (an optimizer minimises; maximise with loss = -objective)",
        summary=f"backward starts from minus the {negated.metadata.get('loss_kind', 'loss')} loss",
        refuted_by="a loss that falls when the sign is flipped back",
        exact=True,
    )
