from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from neuraldbg.detectors import validation_rise
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, record

found = partial(feed, validation_rise, pure=False)

FALLING = [0.98**k for k in range(100)]
RISING = [1.0, 0.8, 0.6, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0]


def run(training: Sequence[float], validations: Sequence[float], every: int = 10) -> list[StepRecord]:
    """A validation after every tenth step."""
    waiting = list(validations)
    return [
        record(k, loss=v, validation=waiting.pop(0) if waiting and k % every == every - 1 else None)
        for k, v in enumerate(training)
    ]


@pytest.mark.parametrize(
    "validations",
    [
        [],
        [0.9**k for k in range(10)],
        [1.0, 0.8, 0.6, 0.5, 0.5, 0.52, 0.49, 0.51, 0.52, 0.5],
        [1.0, 0.8, 0.6, 0.5, 0.4, 0.35, 0.3, 0.28, 0.27, 0.9],
        [0.5, 0.6, 0.9, 1.0],
        [-1.0, -0.5, 0.1, 0.5, 1.0],
    ],
    ids=["none", "falling", "flat", "one bad one at the end", "too few", "no scale"],
)
def test_other_validation_losses_are_no_overfitting(validations: list[float]) -> None:
    assert found(run(FALLING, validations)) == []


def test_where_the_training_loss_rises_as_well_it_is_no_overfitting() -> None:
    assert found(run([0.5] * 40 + [1.0 + k / 50 for k in range(60)], RISING)) == []


def test_a_validation_loss_that_climbs_back_is_told_at_its_best() -> None:
    (event,) = found(run(FALLING, RISING))
    assert (event.symptom, event.step) == ("validation_rise", 39)
    assert event.metadata["best"] == 0.5 and event.metadata["last"] == 0.9
    assert event.metadata["times"] == pytest.approx(1.8)
