"""Which claim wins, what an explained event still counts, and what a broken promise costs."""

from __future__ import annotations

from typing import Any

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.reasoning.competition import compete
from neuraldbg.testing import run

UPDATE = observed("violent_update", 0, "fc1")
DEAD = observed("dead_units", 3, "relu")
BIAS = observed("negative_bias", 0, "fc1")
SPIKE = observed("loss_spike", 50)


def claim(cause: str, *events: SemanticEvent, **more: Any) -> Claim:
    return Claim(cause, "dead_neurons", None, events[0].step, evidence_for=events, **more)


def order(*claims: Claim, steps: int = 100) -> list[str]:
    events = {id(e): e for c in claims for e in c.evidence_for}
    return [r.claim.cause for r in compete(claims, run(*events.values(), steps=steps))]


def test_the_earlier_step_wins() -> None:
    assert order(claim("late", DEAD), claim("early", UPDATE)) == ["early", "late"]


def test_within_a_step_the_earlier_phase_wins() -> None:
    assert order(claim("update", UPDATE), claim("bias", BIAS)) == ["bias", "update"]


def test_an_exact_fact_beats_a_statistic_of_an_earlier_phase_of_its_step() -> None:
    assert order(claim("statistic", BIAS), claim("fact", UPDATE, exact=True)) == ["fact", "statistic"]


def test_an_exact_fact_beats_a_later_statistic() -> None:
    assert order(claim("statistic", DEAD), claim("fact", UPDATE, exact=True)) == ["fact", "statistic"]


def test_a_statistic_that_is_clearly_earlier_beats_an_exact_fact() -> None:
    assert order(claim("fact", SPIKE, exact=True), claim("statistic", DEAD)) == ["statistic", "fact"]


def test_of_two_claims_with_one_root_the_larger_margin_wins() -> None:
    assert order(claim("narrow", UPDATE, strength=0.1), claim("wide", UPDATE, strength=0.9)) == ["wide", "narrow"]


def test_a_note_never_stands_before_a_claim() -> None:
    assert order(claim("note", UPDATE, outcome=False), claim("claim", DEAD)) == ["claim", "note"]


def test_a_predicted_root_is_explained() -> None:
    cause, effect = claim("rate", UPDATE, predicts={"dead_units": 60}), claim("dead", DEAD)
    ranked = compete([effect, cause], run(UPDATE, DEAD))
    assert [(r.claim.cause, r.explained_by) for r in ranked] == [("rate", None), ("dead", "rate")]
    assert ranked[0].score > ranked[1].score


def test_a_root_outside_the_window_is_not_explained() -> None:
    cause, effect = claim("rate", UPDATE, predicts={"dead_units": 2}), claim("dead", DEAD)
    assert [r.explained_by for r in compete([cause, effect], run(UPDATE, DEAD))] == [None, None]


def test_a_note_explains_no_failure_away() -> None:
    note = claim("note", UPDATE, predicts={"dead_units": 60}, outcome=False)
    ranked = compete([note, claim("dead", DEAD)], run(UPDATE, DEAD))
    assert [(r.claim.cause, r.explained_by) for r in ranked] == [("dead", None), ("note", None)]


def test_an_event_already_explained_supports_no_second_cause() -> None:
    first = claim("first", BIAS, predicts={"dead_units": 60})
    second = claim("second", UPDATE, DEAD, predicts={"dead_units": 60})
    alone = compete([second], run(BIAS, UPDATE, DEAD))[0].score
    beside = compete([first, second], run(BIAS, UPDATE, DEAD))[1].score
    assert beside < alone - 1


def test_two_faults_at_once_are_two_hypotheses_with_their_own_support() -> None:
    one = claim("bias", BIAS, DEAD, predicts={"dead_units": 60})
    other = claim("schedule", observed("rate_jump", 49), SPIKE, predicts={"loss_spike": 5}, exact=True)
    ranked = compete([other, one], run(BIAS, DEAD, *other.evidence_for))
    assert [(r.claim.cause, r.explained_by) for r in ranked] == [("bias", None), ("schedule", None)]
    assert [r.hits for r in ranked] == [(DEAD,), (SPIKE,)]


def test_a_prediction_that_failed_counts_against() -> None:
    kept = claim("rate", UPDATE, predicts={"dead_units": 60})
    broken = claim("rate", UPDATE, predicts={"dead_units": 60, "saturation": 20})
    events = run(UPDATE, DEAD)
    assert compete([broken], events)[0].missing == ("saturation",)
    assert compete([broken], events)[0].score < compete([kept], events)[0].score


def test_a_prediction_whose_time_has_not_come_counts_nothing() -> None:
    early = claim("rate", UPDATE, predicts={"dead_units": 60, "saturation": 20})
    assert compete([early], run(UPDATE, DEAD, steps=10))[0].missing == ()


def test_evidence_against_counts_against() -> None:
    doubtful = claim("rate", UPDATE, evidence_against=(SPIKE,))
    assert compete([doubtful], run(UPDATE))[0].score < compete([claim("rate", UPDATE)], run(UPDATE))[0].score


def test_a_claim_without_an_event_starts_its_step() -> None:
    bare = Claim("bare", "dead_neurons", None, 0)
    assert [r.claim.cause for r in compete([claim("update", UPDATE), bare], run(UPDATE))] == ["bare", "update"]


def test_a_state_from_before_the_first_update_is_never_the_updates_doing() -> None:
    late = observed("dead_units", 1, "relu", share=1.0, at_start=1.0)
    cause = claim("rate", UPDATE, predicts={"dead_units": 60})
    ranked = compete([cause, claim("bias", late)], run(UPDATE, late))
    assert [(r.claim.cause, r.explained_by) for r in ranked] == [("bias", None), ("rate", None)]


def test_a_prediction_with_a_wide_window_may_fail() -> None:
    wide = claim("rate", UPDATE, predicts={"dead_units": 60, "saturation": 60})
    assert compete([wide], run(UPDATE, DEAD, steps=1000))[0].missing == ()
