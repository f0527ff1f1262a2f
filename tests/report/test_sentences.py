import math

import pytest

from neuraldbg.diagnosis import FAILURE_TYPES, CausalHypothesis, Claim
from neuraldbg.events import SYMPTOMS, observed, recovered
from neuraldbg.record import Coverage
from neuraldbg.report import sentences
from neuraldbg.report.sentences import CAUSES, cause_words, clean, confidence, describe, evidence, looked_at, numbers


def claim(cause, failure_type, layer=None, step=0, **rest):
    return Claim(cause, failure_type, layer, step, **rest)


def test_the_sentence_of_a_vanishing_gradient_names_layer_step_and_cause():
    root = observed("vanishing_with_depth", 234, "linear1", slope=0.8)
    said = describe(claim("saturating_activations_deep", "vanishing_gradients", "linear1", 234), root)
    assert said == (
        "Gradient vanishing originated in layer 'linear1' at step 234, likely due to many saturating activations in a "
        "row, each of which shrinks the gradient"
    )


def test_advice_opens_with_no_symptom_for_nothing_was_detected():
    small = claim("model_too_small", "optimizer_instability", "fc1", summary="2 units", advice=True, outcome=False)
    assert describe(small, None) == "Perhaps a model too small for the task in layer 'fc1' (2 units)"


def test_nan_in_the_data_is_told_with_the_layer_that_it_enters():
    root = observed("nan_input", 20, None, share=0.1)
    entering = observed("nan_input", 20, None, enters="linear1")
    assert describe(claim("nan_in_input", "data_anomaly", None, 20), root).startswith(
        "NaN values detected in the model's input at step 20, likely due to"
    )
    assert describe(claim("nan_in_input", "data_anomaly", None, 20), entering).startswith(
        "NaN values detected in input to layer 'linear1' at step 20, likely due to"
    )
    assert describe(claim("nan_in_input", "data_anomaly", "fc1", 20), entering).startswith(
        "NaN values detected in input to layer 'fc1' at step 20"
    )


def test_a_spike_that_a_jump_of_the_rate_brought_about_is_told_as_the_spike():
    jump, spike = observed("rate_jump", 49), observed("loss_spike", 50)
    alone = claim("schedule_jump", "optimizer_instability", None, 49, evidence_for=(jump,))
    both = claim("schedule_jump", "optimizer_instability", None, 49, evidence_for=(spike, jump), summary="300-fold.")
    assert describe(alone, jump).startswith("A jump of the learning rate detected at step 49, likely due to")
    assert describe(both, jump) == (
        "Loss spike detected at step 50, likely due to a jump of the learning rate at step 49 (300-fold)"
    )


def test_a_spike_before_the_claim_or_in_another_failure_is_not_what_it_is_about():
    update, early = observed("violent_update", 9, "fc"), observed("loss_spike", 3)
    late = observed("loss_spike", 10)
    before = claim("learning_rate_too_high", "optimizer_instability", "fc", 9, evidence_for=(early, update))
    dead = claim("learning_rate_too_high", "dead_neurons", "fc", 9, evidence_for=(update, late))
    for told in (describe(before, update), describe(dead, update)):
        assert told.startswith("Updates as large as the weights detected in layer 'fc' at step 9")


def test_an_onset_known_only_as_a_range_says_so_and_merged_events_do_not():
    gap = observed("dead_units", 30, "act", step_range=(20, 30))
    said = describe(claim("learning_rate_too_high", "dead_neurons", "act", 30), gap)
    assert "at step 30 (it began between steps 20 and 30), likely" in said
    point = observed("dead_units", 30, "act", step_range=(30, 30))
    assert "between" not in describe(claim("learning_rate_too_high", "dead_neurons", "act", 30), point)


def test_an_unknown_cause_is_not_called_likely():
    said = describe(claim("unknown", "exploding_gradients", "fc", 3), None)
    assert said == "Gradient explosion originated in layer 'fc' at step 3; none of the known causes explains it"


def test_the_model_itself_is_called_the_model():
    assert "in the model at step 1" in describe(claim("bad_initialisation", "exploding_gradients", "", 1), None)


def test_a_cause_of_a_plug_in_is_read_from_its_slug():
    assert cause_words("cosmic_ray\nhit") == "cosmic ray hit"


@pytest.mark.parametrize("failure_type", [*FAILURE_TYPES, "of_another_package"])
@pytest.mark.parametrize("layer", [None, "", "fc", "<a>\n`b`"])
def test_every_failure_type_makes_one_readable_line_without_an_event(failure_type, layer):
    said = describe(claim("unknown", failure_type, layer, 7), None)
    assert said[0].isupper() or failure_type not in FAILURE_TYPES
    assert "at step 7" in said
    assert said == clean(said, 10**6)
    assert "{" not in said and "object at 0x" not in said


@pytest.mark.parametrize("symptom", SYMPTOMS)
@pytest.mark.parametrize("layer", [None, "fc"])
def test_every_symptom_has_an_opening_that_names_the_layer(symptom, layer):
    assert symptom in sentences._BY_SYMPTOM
    said = describe(claim("wrong_loss", "optimizer_instability", layer, 7), observed(symptom, 7, layer))
    assert said[0].isupper() and "{" not in said
    assert said.endswith("at step 7, likely due to a loss that does not fit the targets")
    assert ("'fc'" in said) == (layer is not None)


def test_the_openings_name_no_symptom_that_does_not_exist():
    assert set(sentences._BY_SYMPTOM) == set(SYMPTOMS)
    assert set(sentences._BY_FAILURE) == set(FAILURE_TYPES)


def test_every_cause_in_words_is_one_plain_phrase():
    for words in CAUSES.values():
        assert words == clean(words) and "_" not in words.replace("zero_grad()", "") and not words.endswith(".")


def test_evidence_quotes_the_value_and_its_healthy_baseline():
    event = observed("exploding_gradient", 4, "fc", growth_lg=3.0, baseline=0.8, rms=800.0, cosine=None)
    assert evidence(event) == (
        "the gradient grows by decades in layer 'fc' at step 4 (RMS 800, healthy baseline 0.8, growth 1e+03)"
    )
    assert evidence(recovered(event, 9)) == "back to healthy in layer 'fc' at step 9"
    merged = observed("dead_units", 3, "a", step_range=(3, 8), share=0.5)
    assert evidence(merged) == "units that are zero for every sample in layer 'a' in steps 3 to 8 (share 50 %)"


def test_numbers_that_are_not_finite_or_too_large_to_write_out_are_still_told():
    assert numbers({"share": math.nan, "growth_lg": math.inf, "gain_lg": 400.0, "rms": -math.inf}) == (
        "RMS -inf, share nan, growth inf, gain per layer 400"
    )


def test_numbers_leave_out_what_is_unknown_false_empty_or_meant_for_rules():
    assert numbers({"a": None, "b": False, "c": "", "d": (), "position": "hidden", "since": 3, "at_start": True}) == (
        "from the start"
    )


def test_clean_keeps_letters_of_all_scripts_and_drops_what_a_terminal_would_obey():
    assert clean("слой é 層") == "слой é 層"
    assert clean("a\x1b]0;title\x07b\r\nc\u202ed\ud800") == "a ]0;title b c d"
    assert clean("x" * 400).endswith("…") and len(clean("x" * 400)) == 300


@pytest.mark.parametrize(
    ("value", "calibrated", "words"),
    [
        (0.9, True, "high (0.90)"),
        (0.7, True, "fair (0.70)"),
        (0.5, False, "low (0.50), uncalibrated"),
        (0.1, True, "very low (0.10)"),
    ],
)
def test_confidence_is_a_word_and_a_number(value, calibrated, words):
    hypothesis = CausalHypothesis("dead_neurons", "unknown", None, 0, value, "x", metadata={"calibrated": calibrated})
    assert confidence(hypothesis) == words


def test_coverage_is_told_only_where_it_was_measured():
    assert looked_at(Coverage(), 0) == "nothing yet"
    assert looked_at(Coverage(148, 148, 316, 312, 100, 90, "compiled", 0.012), 100) == (
        "312 of 316 parameters, 148 of 148 modules, 90 of 100 steps (compiled); watching took 1.2 % of the time"
    )
