from __future__ import annotations

from functools import partial

from neuraldbg.rules.input_distribution_shift import input_distribution_shift
from neuraldbg.testing import check_explains, check_silent, observed, run

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
