from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.label_error import label_error
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, label_error)
explains = partial(check_explains, label_error)


SHIFT = observed("target_shift", 60, ratio=100.0, before=1.0, after=100.0)
HARM = observed("loss_spike", 60, decades=4.0)  # of unknown height over chance


def jump(**changes: Any) -> SemanticEvent:
    return observed("loss_spike", 120, **{"decades": 2.2, "over_chance": 4.0, "before_over_chance": 0.04, **changes})


def test_a_spike_of_a_tiny_loss_is_healthy() -> None:
    silent(run(jump(over_chance=0.04, before_over_chance=0.0002)))


def test_a_loss_that_never_learnt_the_labels_proves_nothing() -> None:
    silent(run(jump(before_over_chance=0.9)))
    silent(run(jump(before_over_chance=0.51)))


def test_a_spike_of_unknown_height_proves_nothing() -> None:
    silent(run(observed("loss_spike", 120, decades=2.2, over_chance=None, before_over_chance=None)))


def test_an_input_event_at_the_jump_explains_it() -> None:
    silent(run(observed("input_sentinel", 120, value=-9999.0), jump()))


def test_a_jump_of_the_rate_explains_it() -> None:
    silent(run(observed("rate_jump", 118, decades=2.0), jump()))


def test_units_that_die_in_that_step_explain_it() -> None:
    silent(run(observed("dead_units", 120, "relu", share=0.5), jump()))


def test_targets_of_another_unit_that_nothing_follows_are_only_noted() -> None:
    silent(run(SHIFT))


def test_harm_from_before_the_targets_changed_is_not_their_doing() -> None:
    silent(run(observed("loss_spike", 40), SHIFT))


@pytest.mark.parametrize("other", ["input_shift", "input_sentinel", "rate_jump"])
@pytest.mark.parametrize("step", [57, 60, 63])
def test_what_changes_with_the_targets_explains_their_harm(other: str, step: int) -> None:
    silent(run(observed(other, step), SHIFT, HARM))


def test_a_model_that_is_confidently_wrong() -> None:
    explains(run(jump()), step=120, failure="data_anomaly")


def test_a_model_that_knew_half_of_the_labels_is_wrong_as_well() -> None:
    explains(run(jump(before_over_chance=0.49)), step=120)


def test_targets_of_another_unit_that_the_loss_jumps_at() -> None:
    claim = explains(run(SHIFT, HARM), step=60, failure="data_anomaly")
    assert claim.exact
    assert "100 times" in claim.summary
    assert claim.evidence_for == (SHIFT, HARM)


@pytest.mark.parametrize("harm", ["violent_update", "loss_diverging"])
def test_targets_of_another_unit_that_harm_without_a_jump(harm: str) -> None:
    explains(run(SHIFT, observed(harm, 70)), step=60)


def test_an_input_that_changed_long_before_explains_nothing() -> None:
    explains(run(observed("input_shift", 56), SHIFT, HARM), step=60)


def spiky(*after: float) -> dict[str, Any]:
    return {"skill": [0.04] * 120 + [4.0] + list(after)}


def test_a_spike_that_is_over_after_a_few_steps_is_the_optimizers_own() -> None:
    silent(run(jump(), series=spiky(2.0, 0.9, *[0.1] * 20)))


def test_labels_that_stay_wrong_keep_the_loss_high() -> None:
    explains(run(jump(), series=spiky(*[3.0] * 20)), step=120)


def test_weights_that_were_written_to_just_before_explain_the_jump() -> None:
    silent(run(observed("outside_write", 119, times_lg=1.0), jump()))
    explains(run(observed("outside_write", 50, times_lg=1.0), jump()), step=120)


def test_weights_that_each_step_replaces_make_jumps_of_their_own() -> None:
    silent(run(observed("violent_update", 0, update_lg=-0.1, at_start=True), jump()))
    explains(run(observed("violent_update", 0, update_lg=-0.2, at_start=True), jump()), step=120)


def after(*heights: float) -> dict[str, list[float]]:
    """Loss / chance of the jump's step and of those behind it."""
    return {"skill": [0.2] * 120 + list(heights)}


LOW = jump(decades=0.9, over_chance=1.8, before_over_chance=0.2)


def test_a_model_that_had_learnt_little_when_its_labels_changed() -> None:
    early = jump(decades=0.56, over_chance=2.2, before_over_chance=0.6)
    silent(run(early, series=after(2.2, *[1.1] * 8, 0.9, 0.8)))
    silent(run(early, series=after(2.2, *[1.1] * 8)))  # the run ended before it could be told
    silent(run(jump(decades=0.56, over_chance=2.2, before_over_chance=0.8), series=after(2.2, *[1.1] * 12)))
    silent(run(jump(decades=0.45, over_chance=2.2, before_over_chance=0.6), series=after(2.2, *[1.1] * 12)))
    explains(run(early, series=after(2.2, *[1.1] * 12)), step=120, failure="data_anomaly")


def test_a_lower_jump_that_the_next_batches_do_not_repeat_is_a_spike() -> None:
    silent(run(LOW, series=after(1.8, *[0.6] * 12)))
    silent(run(LOW, series=after(1.8, *[0.6, 1.7] * 2, *[0.6] * 9)))


def test_a_jump_to_hardly_above_chance_may_be_a_hard_batch() -> None:
    silent(run(jump(decades=0.9, over_chance=1.3, before_over_chance=0.1), series=after(*[1.3, 0.2] * 8)))


def test_tiny_batches_lose_as_much_now_and_then_before_it_too() -> None:
    noisy = after(*[1.8, 0.8] * 8)
    noisy["skill"][112] = 0.6
    silent(run(LOW, series=noisy))


def test_a_lower_jump_that_comes_back_with_every_batch_of_one_source() -> None:
    explains(run(LOW, series=after(*[1.8, 0.8] * 8)), step=120, failure="data_anomaly")
