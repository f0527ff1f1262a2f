from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import rate_zero
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, record

found = partial(feed, rate_zero)


def rates(values: list[float], gradient: float = 1.0, **more: bool) -> list[StepRecord]:
    return [record(k, rates=(v,), gradient_norm=gradient, **more) for k, v in enumerate(values)]


@pytest.mark.parametrize(
    "schedule",
    [
        [0.1] * 200,
        [0.0] * 200,
        [0.0] * 60 + [0.1] * 100,
        [0.05 * (1 + math.cos(math.pi * k / 199)) for k in range(200)],
        [max(0.0, 1 - k / 185) for k in range(200)],
        [max(0.0, 1 - (k % 50) / 30) for k in range(190)],
        [0.1 * 0.9**k for k in range(130)],
    ],
    ids=["constant", "never on", "switched on late", "cosine to zero", "15 steps over", "cycles", "exponential"],
)
def test_usual_schedules_do_not_end_early(schedule: list[float]) -> None:
    assert found(rates(schedule)) == []


def test_a_rate_of_zero_wastes_nothing_where_there_is_no_gradient_or_no_step() -> None:
    ended = [1.0] * 50 + [0.0] * 50
    assert found(rates(ended, gradient=0.0)) == []
    assert found(rates(ended, stepped=False)) == []


def test_a_schedule_that_ends_at_half_of_the_run_is_told_at_its_first_zero() -> None:
    (event,) = found(rates([1 - k / 50 for k in range(50)] + [0.0] * 50))
    assert (event.symptom, event.layer_name, event.step) == ("rate_zero", None, 50)
    assert event.metadata == {"before": 1.0, "steps": 50, "share": 0.5}


def test_all_groups_have_to_be_at_zero() -> None:
    two = [record(k, rates=(0.0 if k > 50 else 0.1, 0.1), gradient_norm=1.0) for k in range(100)]
    assert found(two) == []
