from __future__ import annotations

from functools import partial

from neuraldbg.rules.normalisation_over_one_feature import normalisation_over_one_feature
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, normalisation_over_one_feature)
explains = partial(check_explains, normalisation_over_one_feature)

NORM = observed("norm_over_one", 0, "norm", size=1)


def test_a_norm_over_one_value_that_cuts_nothing_is_only_noted() -> None:
    silent(run(NORM))


def test_a_norm_over_one_value_that_erases_the_signal() -> None:
    flat = observed("constant_output", 0, "norm", spread_lg=-20.0)
    explains(run(NORM, flat), layer="norm", step=0, failure="vanishing_gradients")
