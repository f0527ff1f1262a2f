from __future__ import annotations

from functools import partial

from neuraldbg.rules.target_outlier import target_outlier
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, target_outlier)
explains = partial(check_explains, target_outlier)

FAR = observed("target_outlier", 60, z=900.0)


def test_a_far_target_that_a_robust_loss_ignores_is_only_noted() -> None:
    silent(run(FAR))


def test_a_jump_before_the_target_is_not_its_doing() -> None:
    silent(run(observed("loss_spike", 30, decades=2.0), FAR))


def test_a_far_target_and_a_jump_of_the_loss() -> None:
    explains(run(FAR, observed("loss_spike", 60, decades=2.0)), step=60, failure="data_anomaly")
