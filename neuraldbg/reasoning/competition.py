"""Claims compete: the earliest root wins, what it explains counts no further, what it predicted in vain counts against.

Order of roots: by step, then by the phase of the step (input before parameters before ... update). An exact fact
needs no threshold and so wins over a statistical claim at the same or a later step; a statistical claim wins only
where it is clearly earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuraldbg.diagnosis import Claim
from neuraldbg.events import Phase, SemanticEvent
from neuraldbg.reasoning.outcome import before_training, follows
from neuraldbg.run import Run

MUST_COME = 20  # steps: a prediction with a wider window may come, one within it has to
CLEARLY_EARLIER = 2  # steps; states that take a window of a few samples to see are dated by up to two steps late

# The score is in units of a logistic curve: 1 and a half of them turn an even chance into four out of five.
EXACT = 3.0  # none of the exact tests fired on any of 82 healthy runs
STATISTICAL = 1.0
UNKNOWN_STRENGTH = 0.3  # a statistical rule that gives no margin
PER_HIT, MOST_HITS = 0.4, 4
PER_MISS, MOST_MISSES = 0.1, 5  # a cause lists all that it may bring about, and not all of it comes in one run
NOTHING_CAME = 1.0
PER_AGAINST = 0.5
EXPLAINED = 3.0
LEFT_BARE = 1.5  # all that spoke for it, but its root, is explained by an earlier cause
RIVAL = 0.5  # another cause starts from the same event


@dataclass(frozen=True)
class Ranked:
    """A claim in the order of the competition, with what came of its predictions."""

    claim: Claim
    score: float
    hits: tuple[SemanticEvent, ...] = ()
    missing: tuple[str, ...] = ()
    explained_by: str | None = None


def place(claim: Claim) -> tuple[int, int]:
    """(step, phase) of the root; a claim without an event starts its step.

    A state from before the first update is one of step 0, also where it took a few samples to see it.
    """
    root = claim.root
    if root is None:
        return claim.step, 0
    return (0 if before_training(root) else root.step), int(root.phase)


def rank(claim: Claim) -> tuple[float, int, float, int]:
    """What claims are sorted by: step, with a handicap for statistical ones, phase, margin, evidence."""
    step, phase = place(claim)
    return step + (0 if claim.exact else CLEARLY_EARLIER + 0.5), phase, -margin(claim), -len(claim.evidence_for)


def explains(one: Claim, other: Claim) -> bool:
    """Whether `other` starts from an event that `one`, the earlier root, predicted in that window."""
    first, root = one.root, other.root
    if first is None or root is None or first is root or (other.outcome and not one.outcome):
        return False
    if first.phase > Phase.FORWARD and before_training(root):
        return False
    window = one.predicts.get(root.symptom)
    return window is not None and place(one) <= place(other) and root.step - first.step <= window


def came(claim: Claim, run: Run) -> tuple[tuple[SemanticEvent, ...], tuple[str, ...]]:
    """(predicted events that came, predicted symptoms that did not although the run was long enough)."""
    root = claim.root
    if root is None:
        return (), ()
    hits = follows(run, root, claim.predicts)
    seen = {e.symptom for e in hits}
    last = max((e.step for e in run.events), default=0)
    length = max(run.steps - 1, last)
    missing = tuple(
        symptom
        for symptom, window in claim.predicts.items()
        if symptom not in seen and window <= MUST_COME and root.step + window <= length
    )
    return hits, missing


def score(claim: Claim, hits: Sequence[SemanticEvent], missing: Sequence[str], bare: bool, rival: bool) -> float:
    """How strongly a claim stands. bare: an earlier cause explains all of it but its root; rival: see `RIVAL`."""
    total = EXACT if claim.exact else STATISTICAL + max(0.0, min(1.0, margin(claim)))
    total += PER_HIT * min(MOST_HITS, len({e.symptom for e in hits}))
    total -= PER_MISS * min(MOST_MISSES, len(missing))
    total -= NOTHING_CAME if missing and not hits else 0.0
    total -= PER_AGAINST * len(claim.evidence_against)
    return total - (LEFT_BARE if bare else 0.0) - (RIVAL if rival else 0.0)


def margin(claim: Claim) -> float:
    """By how much a statistical rule was met, as it says itself."""
    return claim.strength if claim.strength is not None else UNKNOWN_STRENGTH


def compete(claims: Sequence[Claim], run: Run) -> list[Ranked]:
    """Claims in order: unexplained ones with an outcome, then notes, then those that an earlier cause explains."""
    standing: list[Ranked] = []
    explained: list[Ranked] = []
    counted: set[int] = set()
    for claim in sorted(claims, key=lambda c: (not c.outcome, c.advice, rank(c))):
        by = next((r.claim.cause for r in standing if explains(r.claim, claim)), None)
        hits, missing = came(claim, run)
        fresh = [e for e in hits if id(e) not in counted]
        others = [e for e in claim.evidence_for if e is not claim.root]
        bare = bool(others) and all(id(e) in counted for e in others) and not fresh
        rival = any(c is not claim and c.outcome and c.root is claim.root and claim.root is not None for c in claims)
        total = score(claim, fresh, missing, bare, rival)
        if by is not None:
            explained.append(Ranked(claim, total - EXPLAINED, hits, missing, by))
            continue
        standing.append(Ranked(claim, total, hits, missing))
        counted.update(id(e) for e in hits)
        counted.update(id(e) for e in claim.evidence_for)
    return [*standing, *sorted(explained, key=lambda r: -r.score)]
