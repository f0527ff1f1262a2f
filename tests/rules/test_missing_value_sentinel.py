from __future__ import annotations

from functools import partial

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
