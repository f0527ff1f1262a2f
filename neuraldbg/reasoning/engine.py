"""Run -> Diagnosis: claims of all rules, their competition, the graph, the verdict. Pure."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from neuraldbg.diagnosis import CausalHypothesis, Claim, Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning import calibration, verdict
from neuraldbg.reasoning.competition import Ranked, compete
from neuraldbg.reasoning.couplings import couplings
from neuraldbg.reasoning.discovery import Rule, rules
from neuraldbg.reasoning.graph import causal_graph, condensed, label
from neuraldbg.reasoning.mechanism import failure_of
from neuraldbg.run import Run, ordered
from neuraldbg.settings import Settings, make
from neuraldbg.switch import strict

MOST_LINKS = 8  # of a chain in words
# Of failure types that name a state: only an event that entered it opens their sentence.
STATES = {
    "vanishing_gradients": "vanishing",
    "exploding_gradients": "exploding",
    "dead_neurons": "dead",
    "saturated_activations": "saturated",
}
MOST_EVIDENCE = 40  # events kept as evidence of one hypothesis

log = logging.getLogger("neuraldbg")


def claims_of(run: Run, found: Sequence[tuple[str, Rule]]) -> list[Claim]:
    """What the rules claim. One that raises is told and skipped, and raised under NEURALDBG_STRICT=1."""
    claims: list[Claim] = []
    for name, rule in found:
        try:
            claims.extend(rule(run))
        except Exception as error:
            if strict():
                raise
            log.warning("neuraldbg: the rule %s failed and is skipped: %r", name, error)
    return claims


def diagnose(run: Run, settings: Settings | None = None, found: Sequence[tuple[str, Rule]] | None = None) -> Diagnosis:
    """What the trace of one training means.

    found: (name, rule) pairs to use instead of all installed rules.
    """
    settings = settings or make()
    run = Run(ordered(run.events), run.facts, run.series, run.steps, run.finished)
    claims = claims_of(run, rules() if found is None else found)
    claims += verdict.unexplained(run, claims)
    ranked = compete(claims, run)
    failed = [r for r in ranked if r.claim.outcome]
    notes = [r for r in ranked if not r.claim.outcome]
    hypotheses = _hypotheses(failed)
    kept = _hypotheses(notes)
    said = verdict.verdict(run, hypotheses, kept)
    return Diagnosis(
        verdict=said,
        failure_probability=verdict.probability(said, run, hypotheses),
        hypotheses=hypotheses if said is Verdict.FAILED else (),
        notes=kept,
        couplings=couplings(run.events, run.facts, settings.coupling_window),
        graph=causal_graph(run.events, hypotheses or kept, run.facts, settings.coupling_window),
        events=run.events,
        facts=run.facts,
        series={name: series.points for name, series in run.series.items()},
        steps=run.steps,
    )


def _hypotheses(ranked: Sequence[Ranked]) -> tuple[CausalHypothesis, ...]:
    """Ranked claims with confidences that never rise down the list: an earlier root is the better explanation."""
    known = calibration.load()
    out: list[CausalHypothesis] = []
    ceiling = 1.0
    for place, item in enumerate(ranked):
        sure = known.confidence(item.claim.cause, item.score, note=not item.claim.outcome)
        ceiling = min(ceiling, sure, known.later if place else 1.0)
        out.append(_hypothesis(item, ceiling, known.knows(item.claim.cause)))
    return tuple(out)


def chain_of(item: Ranked) -> list[SemanticEvent]:
    """Root, evidence and fulfilled predictions in order, each symptom once."""
    seen: dict[str, SemanticEvent] = {}
    for event in condensed([*item.claim.evidence_for, *item.hits]):
        seen.setdefault(event.symptom or event.text, event)
    return list(seen.values())[:MOST_LINKS]


def _shown(item: Ranked) -> SemanticEvent | None:
    """The event that the sentence opens with: the root, or the first of the failure that the claim names.

    For what the optimizer did, `describe` itself looks for the loss spike that people saw.
    """
    claim, root = item.claim, item.claim.root
    state = STATES.get(claim.failure_type)
    if root is None or (failure_of(root) == claim.failure_type and state in (None, str(root.to_state))):
        return root
    of_type = [
        e
        for e in (*claim.evidence_for, *item.hits)
        if failure_of(e) == claim.failure_type and state in (None, str(e.to_state))
    ]
    return min(of_type, key=lambda e: e.order, default=root)


def _hypothesis(item: Ranked, confidence: float, calibrated: bool) -> CausalHypothesis:
    from neuraldbg.report.sentences import describe  # the only place that makes sentences

    claim, events = item.claim, chain_of(item)
    evidence = {id(e): e for e in (*claim.evidence_for, *item.hits)}
    description = describe(claim, _shown(item))
    return CausalHypothesis(
        failure_type=claim.failure_type,
        cause=claim.cause,
        layer_name=claim.layer_name,
        step=claim.step,
        confidence=round(confidence, 4),
        description=description if calibrated else f"{description} [uncalibrated]",
        remedy=claim.remedy,
        evidence=ordered(list(evidence.values()))[:MOST_EVIDENCE],
        evidence_against=claim.evidence_against,
        causal_chain=(claim.cause, *(label(e) for e in events)),
        refuted_by=claim.refuted_by,
        metadata={
            "score": round(item.score, 4),
            "exact": claim.exact,
            "advice": claim.advice,
            "calibrated": calibrated,
            "explained_by": item.explained_by,
            "missing": tuple(item.missing),
            "chain_failures": (claim.failure_type, *(failure_of(e) for e in events)),
            "chain_events": ("", *(str(e.event_type) for e in events)),
        },
    )
