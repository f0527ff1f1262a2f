"""Gradient ascent

What it is
    The loss has the wrong sign, so that the training maximises what it should minimise.

How it looks
    The loss operator's own loss rises from the first steps on, steadily, while the gradient keeps its direction
    (cosine near +1) and the updates are of the usual size. Where the graph shows that backward starts from the
    negated loss, it is enough that the loss gets worse, however unsteadily. Of a loss of one's own, whose chance is not
    known: it falls below zero without a bound, and the gradient grows by decades in one direction, as that of an
    objective that is meant to rise.

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
from neuraldbg.reasoning.outcome import BLOW_UP, FOREVER, STARVED, lasting, loss_ruined, value
from neuraldbg.run import Run, median

EARLY = 0.1  # of the run: a sign is wrong from the first step on
STEADY = 0.9  # share of rising points
TIMES = 3.0  # the last loss over the first
DEPTH = 100.0  # times the first loss, below zero: log likelihoods of healthy runs come to rest long before
STRAIGHT = 0.9  # cosine; where a learned spread collapses the gradient turns round
UNBOUNDED = 0.4  # strength of a sign that is inferred and not seen
FORWARD = 0.5  # cosine of successive gradients; overshooting has a negative one

PREDICTS = {**BLOW_UP, **STARVED, "dead_units": FOREVER, "saturation": FOREVER}
REMEDY = "flip the sign of the loss (an optimizer minimises; maximise with loss = -objective)"


def gradient_ascent(run: Run) -> Iterator[Claim]:
    negated = run.first("negated_loss")
    if negated is not None:
        yield from _negated(run, negated)
        return
    yield from _bottomless(run)
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
        predicts=PREDICTS,
        evidence_for=(grown,),
        remedy=REMEDY,
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
        predicts={**PREDICTS, "loss_spike": FOREVER},
        evidence_for=(negated, *ruined),
        remedy=REMEDY,
        summary=f"backward starts from minus the {negated.metadata.get('loss_kind', 'loss')} loss",
        refuted_by="a loss that falls when the sign is flipped back",
        exact=True,
    )


def _bottomless(run: Run) -> Iterator[Claim]:
    """A loss without an operator that is known: a log likelihood with its sign lost falls for ever, ever faster."""
    loss, grown = run.get("loss"), next(lasting(run, "exploding_gradient"), None)
    head, tail = loss.head(), loss.tail()
    if grown is None or head is None or tail is None or len(run.get("skill")) or len(run.facts.optimizers) > 1:
        return
    if tail > -DEPTH * max(1.0, abs(head)) or value(grown, "cosine", 0.0) < STRAIGHT:
        return
    if run.first("rate_jump", "carried_gradient", "violent_update", before=grown):
        return
    yield Claim(
        cause="gradient_ascent",
        failure_type="optimizer_instability",
        layer_name=None,
        step=grown.step,
        predicts=PREDICTS,
        evidence_for=(grown, *lasting(run, "saturated_gradient", "constant_output", since=grown.step)),
        remedy=REMEDY,
        summary=f"the loss falls from {head:.3g} to {tail:.3g} while the gradient grows and keeps its direction",
        refuted_by="a lower bound of the loss below that value",
        strength=UNBOUNDED,
    )
