from __future__ import annotations

from functools import partial

import pytest

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.input_distribution_shift import input_distribution_shift
from neuraldbg.testing import check_explains, check_silent, facts, observed, run

silent = partial(check_silent, input_distribution_shift)
explains = partial(check_explains, input_distribution_shift)

SHIFT = observed("input_shift", 40, z=80.0, feature=2)
JUMP = observed("loss_spike", 41, decades=1.0)


def test_a_shift_that_the_loss_does_not_follow_is_nothing() -> None:
    silent(run(SHIFT))


def test_a_jump_before_the_shift_is_not_its_doing() -> None:
    silent(run(observed("loss_spike", 20, decades=1.0), SHIFT))


def test_a_missing_value_code_is_another_cause() -> None:
    silent(run(SHIFT, observed("input_sentinel", 40, value=-9999.0), JUMP))


def test_batches_of_zeros_are_another_cause() -> None:
    silent(run(SHIFT, observed("zero_batch", 40, share=0.1), JUMP))


def test_a_shift_and_a_loss_that_follows() -> None:
    explains(run(SHIFT, JUMP), step=40, failure="data_anomaly")


def shifted(spreads: float = 1.0, scale: float = 1.0) -> SemanticEvent:
    return observed("input_shift", 40, z=80.0, feature=2, spreads=spreads, scale=scale)


@pytest.mark.parametrize("shift", [shifted(4.9), shifted(scale=9.9), shifted(scale=0.11), shifted(scale=0.0)])
def test_inputs_that_still_overlap_with_the_old_ones_need_a_loss_that_follows(shift: SemanticEvent) -> None:
    silent(run(shift))


def test_what_one_watched_model_gives_another_changes_as_it_learns() -> None:
    silent(run(shifted(8.0), facts=facts(models=("actor", "critic"))))


@pytest.mark.parametrize("shift", [shifted(5.1), shifted(scale=10.1), shifted(scale=0.09)])
def test_inputs_that_left_the_old_range_altogether_are_a_failure_that_a_norm_may_hide(shift: SemanticEvent) -> None:
    explains(run(shift, facts=facts(models=("model",))), step=40, failure="data_anomaly")
