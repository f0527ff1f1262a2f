from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import repeated_batch
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, input_stats, record

found = partial(feed, repeated_batch)


def batches(*fingerprints: float, **more: Any) -> list[StepRecord]:
    return [record(k, inputs=(input_stats(fingerprint=f, **more),)) for k, f in enumerate(fingerprints)]


def test_a_whole_dataset_as_one_batch_is_the_same_every_time() -> None:
    assert found(batches(*[7.0] * 60)) == []


def test_an_epoch_in_fixed_order_comes_back_but_never_twice_running() -> None:
    assert found(batches(*[float(k % 8) for k in range(80)])) == []


def test_a_batch_twice_now_and_then_is_chance() -> None:
    assert found(batches(*[float(k) for k in range(10)], 10.0, 10.0, 10.0, *[20.0 + k for k in range(60)])) == []


def test_eleven_batches_say_nothing_yet() -> None:
    assert found(batches(*[0.0] * 5, *[1.0] * 6)) == []


def test_zeros_are_another_matter() -> None:
    assert found(batches(*[float(k // 4) for k in range(60)], zeros=True)) == []


def test_two_inputs_are_two_streams() -> None:
    """A constant mask beside batches that differ."""
    both = [
        record(k, inputs=(input_stats(fingerprint=float(k)), input_stats(name="mask", fingerprint=1.0)))
        for k in range(60)
    ]
    assert found(both) == []


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_share_a_random_state_are_told_once_since_their_first_copy(workers: int) -> None:
    (event,) = found(batches(*[float(k // workers) for k in range(100)]))
    assert (event.symptom, event.layer_name, event.step) == ("repeated_batch", None, 1)
    assert event.metadata["input"] == "x" and event.metadata["distinct"] == -(-12 // workers)
    assert event.metadata["share"] == pytest.approx(1 - 1 / workers, abs=0.1) and event.metadata["seen"] == 12


@pytest.mark.parametrize(("repeats", "told"), [(3, 0), (4, 1)])
def test_three_of_ten_batches_like_the_one_before_are_the_limit(repeats: int, told: int) -> None:
    pairs = [float(k) for k in range(repeats) for _ in range(2)]
    assert len(found(batches(*[100.0 + k for k in range(12 - len(pairs))], *pairs))) == told


def test_a_whole_set_that_is_replaced_once_is_no_stream() -> None:
    assert found(batches(*[1.0] * 30, *[2.0] * 30)) == []


def test_a_whole_set_with_a_probe_in_between_is_no_stream() -> None:
    assert found(batches(*[2.0 if k % 7 == 6 else 1.0 for k in range(70)])) == []


def test_a_batch_of_another_size_is_another_stream() -> None:
    probes = [
        record(k, inputs=(input_stats(fingerprint=float(k % 4 == 3), rows=5 if k % 4 == 3 else 32),)) for k in range(60)
    ]
    assert found(probes) == []
