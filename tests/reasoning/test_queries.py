"""The questions of the public surface, on hand-made diagnoses."""

from __future__ import annotations

import pytest

from neuraldbg.events import observed, recovered
from neuraldbg.reasoning import diagnose
from neuraldbg.reasoning.couplings import couplings
from neuraldbg.reasoning.queries import chain, collapse, explain, get_hypotheses, root_causes
from neuraldbg.record import RunFacts
from neuraldbg.testing import facts, module, run

LARGE = observed("violent_update", 0, "fc1", update_lg=-0.4)
DEAD = observed("dead_units", 3, "relu1", share=0.6, at_start=0.05, rise=0.55)
FLAT = observed("vanishing_gradient", 5, "fc1", rms=1e-9)
JUMP = observed("rate_jump", 50, decades=2.5, before=1e-3, after=0.3)
FAILED = diagnose(run(LARGE, DEAD, FLAT))
NOTED = diagnose(run(JUMP))
HEALTHY = diagnose(run())


def test_a_healthy_run_has_no_explanation_and_says_so() -> None:
    assert list(explain(HEALTHY)) == []
    with pytest.raises(IndexError, match="the run is healthy"):
        explain(HEALTHY)[0]


def test_a_warning_has_no_explanation_but_notes() -> None:
    assert list(explain(NOTED)) == []
    assert [h.cause for h in get_hypotheses(NOTED)] == ["schedule_jump"]


def test_a_failed_run_is_explained() -> None:
    assert [h.cause for h in explain(FAILED)] == ["learning_rate_too_high"]


def test_a_failure_type_finds_what_passes_it() -> None:
    assert [h.cause for h in explain(FAILED, "vanishing_gradients")] == ["learning_rate_too_high"]


def test_a_failure_type_that_nothing_passes_gives_an_empty_list_that_says_why() -> None:
    with pytest.raises(IndexError, match="not by data_anomaly"):
        explain(FAILED, "data_anomaly")[0]


def test_an_unknown_failure_type_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'vanishing' is unknown; use one of: vanishing_gradients, exp"):
        explain(FAILED, "vanishing")
    with pytest.raises(ValueError, match="activation_regime_shift"):
        chain(HEALTHY, "vanishing")


def test_a_healthy_run_has_no_root_cause() -> None:
    assert root_causes(HEALTHY) == []


def test_the_root_cause_is_the_first_event_of_the_chain() -> None:
    assert root_causes(FAILED) == [LARGE]


def test_a_chain_leads_from_the_cause_to_the_failure() -> None:
    assert chain(FAILED, "vanishing_gradients") == [
        "learning_rate_too_high",
        "an update as large as the weights in 'fc1' (step 0)",
        "units that are zero for every sample in 'relu1' (step 3)",
        "the gradient falls under the floor in 'fc1' (step 5)",
    ]


def test_a_chain_ends_at_the_failure_that_was_asked_for() -> None:
    assert "relu1" in chain(FAILED, "dead_neurons")[-1]


def test_an_event_type_is_a_failure_to_ask_for_too() -> None:
    assert "relu1" in chain(FAILED, "activation_regime_shift")[-1]


def test_nothing_of_the_kind_has_no_chain() -> None:
    assert chain(FAILED, "data_anomaly") == []


def test_without_a_hypothesis_the_chain_follows_the_events() -> None:
    measured = diagnose(run(observed("saturation", 1, "tanh", share=0.6), FLAT, series={"loss": [1.0, 0.5]}))
    assert measured.hypotheses == ()
    assert [step.split(" in ")[0] for step in chain(measured, "vanishing_gradients")] == [
        "a bounded activation at its limits",
        "the gradient falls under the floor",
    ]


def test_events_beyond_the_window_are_not_coupled() -> None:
    assert couplings([LARGE, observed("dead_units", 6, "relu1")], RunFacts(), window=5) == ()


def test_events_without_a_mechanism_are_not_coupled() -> None:
    assert couplings([observed("loss_plateau", 1), observed("nan_input", 2)], RunFacts()) == ()


def test_a_coupling_names_trigger_and_consequence() -> None:
    (found,) = couplings([LARGE, DEAD], RunFacts())
    assert found["trigger"] == "violent_update in 'fc1'"
    assert (found["consequence"], found["step_difference"]) == ("dead_units in 'relu1'", 3)
    assert 0 < found["confidence"] < 1


def test_a_pair_of_layers_is_coupled_once() -> None:
    symptoms = ("dead_units", "saturation", "constant_output")
    again = [observed(symptom, step, "relu1") for step in range(1, 5) for symptom in symptoms]
    found = couplings([LARGE, *again], RunFacts())
    pairs = sorted((c.trigger.split(" in ")[1], c.consequence.split(" in ")[1]) for c in found)
    assert pairs == [("'fc1'", "'relu1'"), ("'relu1'", "'relu1'")]


def test_couplings_are_bounded() -> None:
    many = [observed("violent_update", 0, f"fc{i}") for i in range(60)]
    dead = [observed("dead_units", 1, f"relu{i}") for i in range(60)]
    assert len(couplings([*many, *dead], RunFacts())) == 50


def test_within_a_step_nothing_flows_against_the_forward_order() -> None:
    model = facts(module("first", 0), module("last", 1))
    early, late = observed("saturation", 4, "first"), observed("constant_output", 4, "last")
    assert len(couplings([early, late], model)) == 1
    back = observed("saturation", 4, "last"), observed("constant_output", 4, "first")
    assert couplings(back, model) == ()


def test_a_symptom_spreads_forwards_in_the_forward_pass_and_backwards_in_the_gradient() -> None:
    model = facts(module("first", 0), module("last", 1))
    dead = observed("dead_units", 1, "first"), observed("dead_units", 2, "last")
    assert [c.trigger for c in couplings(dead, model)] == ["dead_units in 'first'"]
    grown = observed("exploding_gradient", 1, "last"), observed("exploding_gradient", 2, "first")
    assert [c.trigger for c in couplings(grown, model)] == ["exploding_gradient in 'last'"]
    assert (
        couplings((observed("exploding_gradient", 1, "first"), observed("exploding_gradient", 2, "last")), model) == ()
    )


def test_a_single_event_is_not_collapsed() -> None:
    assert collapse([DEAD]) == [DEAD]


def test_events_of_one_layer_and_type_are_merged() -> None:
    again = observed("dead_units", 9, "relu1", confidence=0.4, share=0.8)
    (merged,) = collapse([DEAD, again])
    assert (merged.step, merged.step_range, merged.collapsed_count) == (3, (3, 9), 2)
    assert (merged.confidence, merged.metadata["share"]) == (1.0, 0.8)


def test_other_layers_and_types_stay_apart() -> None:
    assert len(collapse([DEAD, FLAT, observed("dead_units", 4, "relu2")])) == 3


def test_a_merged_event_that_recovered_still_says_what_happened() -> None:
    (merged,) = collapse([DEAD, recovered(DEAD, 20)])
    assert str(merged.to_state) == "dead"
    assert (merged.metadata["recovered"], merged.step_range) == (20, (3, 20))


def test_collapsing_twice_changes_nothing() -> None:
    once = collapse([DEAD, observed("dead_units", 9, "relu1"), LARGE])
    assert collapse(once) == once
