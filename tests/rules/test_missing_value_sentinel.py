from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.missing_value_sentinel import missing_value_sentinel
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, missing_value_sentinel)
explains = partial(check_explains, missing_value_sentinel)

CODE = observed("input_sentinel", 110, value=-9999.0, repeats=40, decades=3.4)


def test_a_code_that_the_model_masks_is_only_noted() -> None:
    silent(run(CODE))


def test_a_jump_before_the_code_is_not_its_doing() -> None:
    silent(run(observed("loss_spike", 90, decades=2.0), CODE))


def test_a_code_that_is_read_as_a_number() -> None:
    explains(run(CODE, observed("loss_spike", 110, decades=6.5)), step=110, failure="data_anomaly")


def codes(*steps: int, value: float = -9999.0) -> list[SemanticEvent]:
    return [observed("input_sentinel", k, value=value, repeats=4, decades=3.4) for k in steps]


def test_a_code_in_a_few_batches_that_the_model_masks_is_only_noted() -> None:
    silent(run(*codes(110, 114, 120, 130, 140, 150)))
    silent(run(*codes(110, 111, 112, 113)))


def test_far_values_that_differ_from_batch_to_batch_are_no_code() -> None:
    silent(run(*[codes(110 + k, value=-900.0 - k)[0] for k in range(8)]))


def test_a_code_that_comes_to_stay_is_a_new_source() -> None:
    explains(run(*codes(110, 111, 113, 115, 117)), step=110, failure="data_anomaly")
