from __future__ import annotations

from functools import partial

from neuraldbg.rules.zero_initialised_factors import zero_initialised_factors
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, zero_initialised_factors)
explains = partial(check_explains, zero_initialised_factors)

ZERO = observed("zero_factors", 0, "adapter.up")


def test_a_zero_factor_that_gets_a_gradient_is_fine() -> None:
    silent(run(ZERO))


def test_two_zero_factors_block_each_other() -> None:
    cut = observed("zero_gradient", 0, "adapter.up", share=1.0)
    explains(run(ZERO, cut), layer="adapter.up", step=0, failure="vanishing_gradients")
