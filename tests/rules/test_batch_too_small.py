from __future__ import annotations

import pytest

from neuraldbg.rules.batch_too_small import batch_too_small
from neuraldbg.run import Run
from neuraldbg.testing import observed, run


def noisy(rows: float = 4, swing: float = 0.9, fall: float = 1.0, cosine: float = 0.05) -> Run:
    """A loss that swings about its level, which falls by `fall` a step."""
    skill = [0.8 * fall**k * (1 + swing * (-1) ** k) for k in range(200)]
    given = {"loss": skill, "skill": skill, "rows": [rows] * 200, "cosine": [cosine] * 200}
    return run(series=given, steps=200)


@pytest.mark.parametrize(
    "quiet",
    [noisy(rows=64), noisy(swing=0.1), noisy(fall=0.995), noisy(cosine=0.8), run(series={"loss": [1.0] * 100})],
    ids=["many samples", "little noise", "falling", "one direction", "nothing known"],
)
def test_other_losses_are_not_the_batchs_fault(quiet: Run) -> None:
    assert list(batch_too_small(quiet)) == []


def test_a_run_that_broke_gets_no_advice() -> None:
    assert list(batch_too_small(run(observed("loss_nonfinite", 9), series=noisy().series))) == []


def test_few_samples_and_a_loss_that_swings_where_it_is_are_told_with_both_numbers() -> None:
    (claim,) = batch_too_small(noisy())
    assert claim.advice and not claim.outcome
    assert claim.summary == "batches of 4 samples, and the loss swings by 90% of its level"
