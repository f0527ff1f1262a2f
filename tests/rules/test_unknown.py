from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.record import REPLAY_OFF, Coverage
from neuraldbg.rules.unknown import unknown
from neuraldbg.testing import check_explains, check_silent, facts, observed, run

silent = partial(check_silent, unknown)
explains = partial(check_explains, unknown)


def given(kind: str, step: int, layer: str, state: str) -> SemanticEvent:
    return SemanticEvent(kind, layer, step, "healthy", state)  # type: ignore[arg-type]


SATURATED = given("activation_regime_shift", 10, "tanh", "saturated")
VANISHING = given("gradient_health_transition", 12, "lin", "vanishing")


def test_a_loss_at_chance_alone_is_no_failure() -> None:
    silent(run(observed("loss_plateau", 0, skill=1.0)))


def test_a_measured_event_without_an_outcome_is_no_failure() -> None:
    silent(run(observed("exploding_gradient", 10, "lin", growth_lg=2.1)))


def test_an_event_given_by_hand_in_a_training_that_goes_on_is_only_noted() -> None:
    falling = run(SATURATED, series={"loss": [1.0 - 0.01 * i for i in range(50)]})
    silent(falling)
    assert [c.failure_type for c in unknown(falling)] == ["saturated_activations"]


def test_a_jump_below_chance_is_healthy() -> None:
    silent(run(observed("loss_spike", 10, decades=2.0, over_chance=0.5, before_over_chance=0.01)))


def test_a_loss_that_is_not_finite() -> None:
    explains(run(observed("loss_nonfinite", 30)), step=30)


def test_a_loss_that_jumped_far_above_chance() -> None:
    high = observed("loss_spike", 10, decades=2.0, over_chance=5.0, before_over_chance=0.4)
    explains(run(high), step=10, failure="optimizer_instability")


def test_a_vanishing_gradient_given_by_hand_is_all_that_is_known() -> None:
    explains(run(VANISHING), layer="lin", step=12, failure="vanishing_gradients")


def test_saturation_shortly_before_it_is_its_root() -> None:
    claim = explains(run(SATURATED, VANISHING), layer="tanh", step=10, failure="saturated_activations")
    assert claim.evidence_for == (SATURATED, VANISHING)


def test_events_far_apart_are_two_failures() -> None:
    late = given("gradient_health_transition", 90, "lin", "vanishing")
    assert [c.failure_type for c in unknown(run(SATURATED, late))] == ["saturated_activations", "vanishing_gradients"]


WRITE = observed("outside_write", 20, times_lg=1.0, share=1.0, layers=4)


def test_a_write_to_the_weights_that_does_no_harm_is_the_users_own() -> None:
    silent(run(WRITE))
    silent(run(WRITE, observed("loss_spike", 60, decades=0.6)))
    silent(run(observed("loss_spike", 19, decades=0.6), WRITE))


def test_a_write_to_the_weights_that_the_loss_follows_is_none_of_the_known_causes() -> None:
    claim = explains(run(WRITE, observed("loss_spike", 21, decades=2.0)), step=20, failure="optimizer_instability")
    assert claim.exact and "10.0 times" in claim.summary


def test_a_write_to_the_weights_after_which_the_loss_diverges() -> None:
    explains(run(WRITE, observed("loss_diverging", 23, growth_lg=2.0)), step=20)
    silent(run(WRITE, observed("loss_oscillating", 23, flips=0.7)))


LOSS = {"loss": [1.0, 2.0, 4.0]}
DIVERGED = observed("loss_diverging", 3, growth_lg=2.0)
NAN = observed("loss_nonfinite", 3)


def advised(
    *events: SemanticEvent,
    steps: int = 10,
    sampled: int = 10,
    notes: tuple[str, ...] = (),
    series: Mapping[str, Sequence[float]] = LOSS,
) -> str:
    coverage = Coverage(steps=steps, steps_sampled=sampled, notes=notes)
    given = run(*events, facts=facts(coverage=coverage), series=series)
    return explains(given, layer=events[0].layer_name).remedy


def test_where_every_step_was_recorded_nobody_is_told_to_record_every_step() -> None:
    for event in (DIVERGED, NAN):
        for known in ({}, LOSS, {**LOSS, "validation": [1.0]}):
            assert "cadence" not in advised(event, series=known)
    assert "cadence" not in advised(WRITE, DIVERGED)


def test_where_steps_were_left_out_all_should_be_recorded() -> None:
    assert "NeuralDbg(model, cadence=1)" in advised(DIVERGED, sampled=4)
    late = observed("loss_diverging", 22, growth_lg=2.0)
    assert "NeuralDbg(model, cadence=1)" in advised(WRITE, late, sampled=4)


def test_the_advice_is_what_was_not_on() -> None:
    off = (f"replay of step 3: not made, {REPLAY_OFF}; the operator is unknown",)
    assert "dbg.record_loss(" in advised(NAN, series={})
    assert "replay=True" in advised(NAN, notes=off)
    assert "replay" not in advised(NAN, notes=("replay of step 3: not made, the model is on cuda",))
    assert "dbg.record_validation_loss(" in advised(DIVERGED)
    assert "neuraldbg diff" in advised(DIVERGED, series={**LOSS, "validation": [1.0]})
    assert "neuraldbg diff" in advised(NAN)
    assert "with NeuralDbg(model)" in advised(VANISHING, steps=0, sampled=0, series={})
