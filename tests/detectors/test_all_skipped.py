from __future__ import annotations

from functools import partial

from neuraldbg.detectors import all_skipped
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, record

found = partial(feed, all_skipped)


def steps(*skipped: bool) -> list[StepRecord]:
    return [record(k, skipped=s, sampled=k % 10 == 0, loss_scale=4.0) for k, s in enumerate(skipped)]


def test_a_scaler_that_looks_for_its_scale_skips_some_steps() -> None:
    assert found(steps(*[True] * 39, *[False] * 60)) == []
    assert found(steps(*([True] * 30 + [False]) * 5)) == []


def test_forty_skipped_steps_in_a_row_are_told_since_the_first() -> None:
    (event,) = found(steps(*[False] * 10, *[True] * 90))
    assert (event.symptom, event.layer_name, event.step) == ("all_skipped", None, 10)
    assert event.metadata == {"steps": 40, "scale": 4.0}


def test_the_first_step_that_is_taken_ends_it() -> None:
    events = found(steps(*[True] * 50, *[False] * 5))
    assert [(e.step, e.is_recovery) for e in events] == [(0, False), (50, True)]
