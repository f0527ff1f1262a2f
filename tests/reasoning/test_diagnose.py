"""Verdict, hypotheses and graph of whole runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from neuraldbg import SemanticEvent
from neuraldbg.diagnosis import Claim, Verdict
from neuraldbg.events import SYMPTOMS, observed
from neuraldbg.reasoning import diagnose
from neuraldbg.run import Run
from neuraldbg.testing import facts, optimizer, run

FALLING = {"loss": [2.3 * 0.97**i for i in range(100)], "skill": [0.97**i for i in range(100)]}
LARGE = observed("violent_update", 0, "fc1", update_lg=-0.4, at_start=True)
DEAD = observed("dead_units", 3, "relu1", share=0.75, at_start=0.05, rise=0.7)
JUMP = observed("rate_jump", 50, decades=2.5, before=1e-3, after=0.3)
SPIKE = observed("loss_spike", 51, decades=1.0, over_chance=1.5, before_over_chance=0.3)


def test_a_run_without_events_is_healthy_and_has_no_hypothesis() -> None:
    said = diagnose(run(series=FALLING))
    assert (said.verdict, said.hypotheses, said.notes) == (Verdict.HEALTHY, (), ())
    assert said.failure_probability < 0.1


def test_a_loss_at_chance_alone_is_a_warning() -> None:
    said = diagnose(run(observed("loss_plateau", 0, skill=1.0)))
    assert (said.verdict, said.hypotheses) == (Verdict.WARNING, ())


def test_a_game_whose_players_losses_stay_where_they_are_is_healthy() -> None:
    two = facts(optimizers=(optimizer("Adam"), optimizer("Adam")))
    assert diagnose(run(observed("loss_plateau", 0, skill=1.0), facts=two)).verdict is Verdict.HEALTHY


def test_a_third_of_a_layer_dead_is_healthy() -> None:
    few = observed("dead_units", 0, "relu", share=0.33, at_start=0.3, rise=0.03)
    assert diagnose(run(few, series=FALLING)).verdict is Verdict.HEALTHY


def test_most_of_a_layer_dead_without_a_cause_is_a_warning() -> None:
    many = observed("dead_units", 0, "relu", share=0.7, at_start=0.7, rise=0.0)
    assert diagnose(run(many, series=FALLING)).verdict is Verdict.WARNING


def test_a_jump_of_the_rate_that_nothing_follows_is_a_warning_with_a_note() -> None:
    said = diagnose(run(JUMP, series=FALLING))
    assert (said.verdict, said.hypotheses) == (Verdict.WARNING, ())
    assert [h.cause for h in said.notes] == ["schedule_jump"]


def test_a_run_that_goes_on_is_running_until_it_fails() -> None:
    assert diagnose(run(series=FALLING, finished=False)).verdict is Verdict.RUNNING
    assert diagnose(run(JUMP, SPIKE, finished=False)).verdict is Verdict.FAILED


def test_a_failed_run_names_the_cause_first() -> None:
    said = diagnose(run(LARGE, DEAD, series=FALLING))
    top = said.hypotheses[0]
    assert (said.verdict, top.cause, top.failure_type) == (Verdict.FAILED, "learning_rate_too_high", "dead_neurons")
    assert (top.layer_name, top.step) == ("relu1", 3)
    assert top.causal_chain[0] == "learning_rate_too_high"
    assert "relu1" in top.causal_chain[-1]
    assert top.remedy and top.refuted_by


def test_confidences_never_rise_down_the_list() -> None:
    exact = observed("repeated_batch", 30, distinct=2, seen=90, share=0.9)
    confidences = [h.confidence for h in diagnose(run(LARGE, DEAD, JUMP, SPIKE, exact)).hypotheses]
    assert len(confidences) >= 3
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 <= c <= 1 for c in confidences)


def test_a_jump_of_the_rate_after_dead_units_is_a_second_fault() -> None:
    causes = [h.cause for h in diagnose(run(LARGE, DEAD, JUMP, SPIKE)).hypotheses if not h.metadata["explained_by"]]
    assert causes == ["learning_rate_too_high", "schedule_jump"]


def test_a_loss_that_is_not_finite_without_a_cause_is_unknown() -> None:
    said = diagnose(run(observed("loss_nonfinite", 40)))
    assert (said.verdict, said.hypotheses[0].cause) == (Verdict.FAILED, "unknown")
    assert said.failure_probability > 0.95


def test_a_rules_own_plug_in_is_uncalibrated() -> None:
    def mine(run: Run) -> Iterator[Claim]:
        yield Claim("mine", "data_anomaly", None, 0, evidence_for=run.events, remedy="fix it", exact=True)

    said = diagnose(run(DEAD), found=[("mine", mine)])
    assert said.hypotheses[0].confidence <= 0.5
    assert "uncalibrated" in str(said.hypotheses[0])


def test_a_rule_that_fails_is_told_and_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(run: Run) -> Iterator[Claim]:
        raise ZeroDivisionError("mine")

    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    with caplog.at_level(logging.WARNING, logger="neuraldbg"):
        assert diagnose(run(), found=[("broken", broken)]).verdict is Verdict.HEALTHY
    assert "the rule broken failed and is skipped" in caplog.text


def test_a_rule_that_fails_is_raised_under_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Run) -> Iterator[Claim]:
        raise ZeroDivisionError("mine")

    monkeypatch.setenv("NEURALDBG_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        diagnose(run(), found=[("broken", broken)])


def test_events_given_by_hand_are_reasoned_over() -> None:
    saturated = SemanticEvent("activation_regime_shift", "tanh", 10, "normal", "saturated")  # type: ignore[arg-type]
    vanishing = SemanticEvent("gradient_health_transition", "lin", 12, "healthy", "vanishing")  # type: ignore[arg-type]
    said = diagnose(run(vanishing, saturated, steps=0))
    top = said.hypotheses[0]
    assert (said.verdict, top.cause, top.layer_name, top.step) == (Verdict.FAILED, "unknown", "tanh", 10)
    assert top.confidence <= 0.5
    assert len(said.couplings) == 1


def test_a_lone_event_given_by_hand_is_a_hypothesis_of_its_failure() -> None:
    vanishing = SemanticEvent("gradient_health_transition", "lin", 12, "healthy", "vanishing")  # type: ignore[arg-type]
    assert diagnose(run(vanishing, steps=0)).hypotheses[0].failure_type == "vanishing_gradients"


def test_the_same_run_gives_the_same_diagnosis() -> None:
    trace = run(SPIKE, DEAD, JUMP, LARGE, series=FALLING)
    assert diagnose(trace) == diagnose(trace)


def test_every_hypothesis_can_be_read_on_one_line() -> None:
    layer = '"];\nx[<script>'
    everything = run(*(observed(symptom, 3, layer) for symptom in SYMPTOMS))
    for h in (*diagnose(everything).hypotheses, *diagnose(everything).notes):
        assert "\n" not in str(h) and " object at 0x" not in str(h)


def test_the_graph_leads_from_the_cause_to_its_events() -> None:
    graph = diagnose(run(LARGE, DEAD)).graph
    names = {n.id: n.label for n in graph.nodes}
    links = {(names[e.source].split(" in ")[0], names[e.target].split(" in ")[0], e.kind) for e in graph.edges}
    assert links == {
        ("learning_rate_too_high", "an update as large as the weights", "causes"),
        ("an update as large as the weights", "units that are zero for every sample", "mechanism"),
    }


def test_the_graph_is_bounded() -> None:
    many = [observed("dead_units", i, f"relu{i}", share=0.5) for i in range(500)]
    assert len(diagnose(run(*many)).graph.nodes) <= 70


def test_weights_that_something_else_wrote_to_are_unknown_although_the_loss_then_diverges() -> None:
    written = observed("outside_write", 30, times_lg=1.2, share=1.0, layers=4)
    update = observed("violent_update", 30, update_lg=-0.05)
    jumped = observed("loss_spike", 31, decades=2.0, over_chance=5.0, before_over_chance=0.1)
    said = diagnose(run(written, update, jumped, observed("loss_diverging", 31, growth_lg=3.0)))
    assert [h.cause for h in said.hypotheses if not h.metadata["explained_by"]] == ["unknown"]
    assert said.hypotheses[0].step == 30 and said.hypotheses[0].confidence > 0.5
