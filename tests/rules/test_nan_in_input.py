from __future__ import annotations

from functools import partial

from neuraldbg.rules.nan_in_input import nan_in_input
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, nan_in_input)
explains = partial(check_explains, nan_in_input)

BAD = observed("nan_input", 20, share=0.01, count=3)


def test_nan_that_the_model_masks_is_only_noted() -> None:
    silent(run(BAD))


def test_nan_in_a_batch_after_the_loss_was_lost_is_not_the_cause() -> None:
    silent(run(observed("loss_nonfinite", 10), BAD))


def test_nan_that_reaches_the_loss() -> None:
    explains(run(BAD, observed("loss_nonfinite", 20)), step=20, failure="data_anomaly")
