from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.rules.clipping_misses_parameters import clipping_misses_parameters
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, clipping_misses_parameters)
explains = partial(check_explains, clipping_misses_parameters)

CHANCE = [0.5] * 100  # loss / chance of a run that has learnt half of it


def missed(step: int = 10, thrown: int | None = None, **more: Any) -> SemanticEvent:
    return observed("unclipped_gradient", step, "head", share=0.02, limit=0.1, norm=20.0, thrown=thrown, **more)


def claim(*events: SemanticEvent, skill: list[float] | None = None) -> Claim:
    (found,) = clipping_misses_parameters(run(*events, series={"skill": skill or CHANCE, "loss": skill or CHANCE}))
    return found


# near misses: what is left out and does no harm is a note


def test_a_clip_that_reaches_all_is_nothing_even_where_the_loss_jumps() -> None:
    silent(run(observed("loss_spike", 12, over_chance=5.0), observed("violent_update", 11, update_lg=0.0)))


def test_a_part_left_out_that_does_no_harm_is_a_note() -> None:
    assert claim(missed()).outcome is False


def test_harm_of_something_else_does_not_make_it_more() -> None:
    """No step of the size of the weights: a batch of NaN, a loss that jumps, a plateau have causes of their own."""
    others = (
        observed("nan_input", 40),
        observed("loss_nonfinite", 40),
        observed("loss_spike", 12, over_chance=5.0),
        observed("loss_plateau", 50, skill=1.0),
    )
    assert claim(missed(), *others).outcome is False


def test_a_large_step_without_a_consequence_is_a_note() -> None:
    assert claim(missed(thrown=10)).outcome is False


def test_a_large_step_long_before_the_harm_is_a_note() -> None:
    assert claim(missed(thrown=10), observed("loss_nonfinite", 31)).outcome is False
    assert claim(missed(thrown=10), observed("dead_units", 71, "act", share=0.9, rise=0.8)).outcome is False


def test_harm_before_the_large_step_is_not_its_doing() -> None:
    assert claim(missed(thrown=12), observed("loss_spike", 11, over_chance=5.0)).outcome is False


@pytest.mark.parametrize(
    "harmless",
    [
        observed("loss_spike", 12, over_chance=0.04, height=0.1),
        observed("loss_spike", 12, over_chance=None, height=0.3),
        observed("dead_units", 14, "act", share=0.42, at_start=0.4, rise=0.02),
        observed("dead_units", 14, "act", share=0.45, at_start=0.2, rise=0.25),
        observed("saturation", 14, "act", share=0.9, at_start=True),
        observed("constant_output", 14, "act", at_start=True),
        observed("exploding_gradient", 12, "head", rms=2e3, absolute=True),
    ],
    ids=lambda e: f"{e.symptom} {dict(e.metadata)}",
)
def test_what_healthy_runs_show_as_well_is_no_harm(harmless: SemanticEvent) -> None:
    assert claim(missed(thrown=10), harmless).outcome is False


def test_a_loss_that_stays_below_three_times_chance_has_not_been_thrown() -> None:
    assert claim(missed(thrown=10), skill=[0.5] * 11 + [2.9, 2.0] + [0.5] * 87).outcome is False


# hits


@pytest.mark.parametrize(
    ("harm", "failure"),
    [
        (observed("loss_nonfinite", 12), "exploding_gradients"),
        (observed("nonfinite_weight", 11, "head"), "exploding_gradients"),
        (observed("loss_diverging", 11, growth_lg=2.0), "optimizer_instability"),
        (observed("loss_plateau", 20, skill=1.0), "optimizer_instability"),
        (observed("loss_spike", 12, over_chance=5.0), "optimizer_instability"),
        (observed("loss_spike", 12, over_chance=None, height=60.0), "optimizer_instability"),
        (observed("exploding_gradient", 12, growth_lg=3.0), "optimizer_instability"),
        (observed("dead_units", 40, "act", share=0.8, at_start=0.1, rise=0.7), "optimizer_instability"),
        (observed("saturation", 40, "act", share=0.8, at_start=False), "optimizer_instability"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.symptom,
)
def test_a_step_of_the_size_of_the_weights_that_ruins_something(harm: SemanticEvent, failure: str) -> None:
    explains(run(missed(thrown=10), harm), layer="head", step=10, failure=failure)
    assert claim(missed(thrown=10), harm).outcome


def test_a_loss_far_above_chance_right_after_it_needs_no_event() -> None:
    assert claim(missed(thrown=10), skill=[0.5] * 11 + [20.0, 13.0] + [0.5] * 87).outcome


def test_the_part_left_out_is_dated_from_where_the_clip_first_bound_and_thrown_later() -> None:
    later = missed(60, thrown=60)
    found = claim(missed(10), later, observed("loss_spike", 61, over_chance=5.0))
    assert found.outcome and found.step == 10 and later in found.evidence_for


def test_it_says_how_much_is_left_out_and_by_how_much_it_is_larger() -> None:
    said = claim(missed()).summary
    assert said == "2% of the parameters are not clipped: a gradient of norm 20 beside a limit of 0.1"
