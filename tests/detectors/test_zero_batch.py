from __future__ import annotations

from functools import partial

import pytest

from neuraldbg.detectors import zero_batch
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, input_stats, record

found = partial(feed, zero_batch)


def batches(*zeros: bool) -> list[StepRecord]:
    return [record(k, inputs=(input_stats(zeros=z),)) for k, z in enumerate(zeros)]


def test_an_input_that_is_always_zero_is_a_state_that_starts_at_zero() -> None:
    assert found(batches(*[True] * 60)) == []


def test_zeros_before_three_other_batches_are_a_start() -> None:
    assert found(batches(True, False, False, True)) == []


def test_a_second_input_of_zeros_beside_a_first_that_is_not_is_its_own_matter() -> None:
    both = [record(k, inputs=(input_stats(), input_stats(name="mask", zeros=True))) for k in range(30)]
    assert found(both) == []


def test_a_zero_batch_among_others_is_told_with_its_share() -> None:
    (event,) = found(batches(*[False] * 9, True, *[False] * 9))
    assert (event.symptom, event.layer_name, event.step) == ("zero_batch", None, 9)
    assert event.metadata == {"input": "x", "share": pytest.approx(0.1)}


def test_each_is_told_up_to_twenty() -> None:
    events = found(batches(*[False] * 10, *[True] * 50))
    assert [e.step for e in events] == list(range(10, 30))
    assert events[-1].metadata["share"] == pytest.approx(2 / 3)


def test_three_other_batches_are_enough() -> None:
    assert len(found(batches(False, False, False, True))) == 1
