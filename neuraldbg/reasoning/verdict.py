"""Whether the run failed: its own question, apart from which cause did it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuraldbg.diagnosis import CausalHypothesis, Claim, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import NONFINITE, lasting, value
from neuraldbg.run import Run

# Probabilities of failure for what is not graded by a hypothesis; the last judged runs gave no better numbers.
UNDENIABLE, BY_CAUSE, WARNED, FINE = 0.99, 0.6, 0.2, 0.02
UNSEEN = 0.5  # nothing is known of it

# What is wrong without having hurt the training, and from which share of a layer's units on.
HARMFUL = (*NONFINITE, "loss_diverging", "loss_plateau", "exploding_gradient", "constant_output", "stuck_parameter")
HARMFUL_SHARE = {"dead_units": 0.5, "saturation": 0.8}  # healthy runs have 0.42 of a layer dead and 0.09 saturated


def unexplained(run: Run, claims: Sequence[Claim]) -> list[Claim]:
    """`unknown` speaks where no rule claims an outcome, and where it is an exact fact that none of them did it."""
    from neuraldbg.rules.unknown import unknown  # rules read outcome.py, so the folder is imported late

    found = list(unknown(run))
    exact = [c for c in found if c.exact]
    said = [c for c in claims if not c.advice]
    return exact if any(c.outcome for c in said) else [c for c in found if c.outcome or not said]


def undeniable(run: Run) -> bool:
    """Non-finite to the end, or diverged: a failure whatever the cause."""
    loss = run.get("loss").values
    ended = bool(loss) and not math.isfinite(loss[-1])
    return ended or next(lasting(run, *NONFINITE, "loss_diverging"), None) is not None


def saw_nothing(run: Run) -> bool:
    """Whether nothing of a training came by: no step, no number, no event."""
    return not (run.steps or run.events or any(map(len, run.series.values())))


def harmful(run: Run) -> tuple[SemanticEvent, ...]:
    """What lasts and is wrong, whether or not it has hurt."""
    game = len(run.facts.optimizers) > 1  # the losses of players that learn need not fall
    found = [
        e
        for e in lasting(run, *HARMFUL)
        if not e.metadata.get("absolute")  # a constant hurts nobody
        and not (game and e.symptom == "loss_plateau")
    ]
    shares = (e for e in lasting(run, *HARMFUL_SHARE) if value(e, "share", 0.0) >= HARMFUL_SHARE[e.symptom])
    return (*found, *shares)


def verdict(run: Run, hypotheses: Sequence[CausalHypothesis], notes: Sequence[CausalHypothesis]) -> Verdict:
    if any(not h.metadata.get("explained_by") for h in hypotheses):
        return Verdict.FAILED
    if not run.finished:
        return Verdict.RUNNING
    if saw_nothing(run):
        return Verdict.WARNING  # to call healthy what nobody looked at would be the worst of errors
    measured = harmful(run)
    wrong = any(not n.metadata.get("advice") for n in notes)
    return Verdict.WARNING if wrong or measured else Verdict.HEALTHY


def probability(said: Verdict, run: Run, hypotheses: Sequence[CausalHypothesis]) -> float:
    """Of the run having failed, whatever the cause."""
    if said is Verdict.FAILED:
        sure = max((h.confidence for h in hypotheses), default=0.0)
        return UNDENIABLE if undeniable(run) else round(BY_CAUSE + (UNDENIABLE - BY_CAUSE) * sure, 4)
    if said is Verdict.WARNING:
        return UNSEEN if saw_nothing(run) else WARNED
    return FINE
