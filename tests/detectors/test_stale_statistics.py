from __future__ import annotations

from functools import partial

import pytest

from neuraldbg.detectors import stale_statistics
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

found = partial(feed, stale_statistics)


def net(running: float | None = 1.0, kind: str = "BatchNorm1d") -> RunFacts:
    return facts(module("fc", 0), module("norm", 1, kind=kind, running_rms=running))


def batches(rms: float, steps: int = 60, training: bool = True) -> list[StepRecord]:
    return [record(k, layers={"norm": layer_stats(inputs_rms=rms, training=training)}) for k in range(steps)]


@pytest.mark.parametrize("rms", [1.0, 0.6, 1.9])
def test_statistics_that_have_caught_up_are_fine(rms: float) -> None:
    assert found(batches(rms), net()) == []


def test_short_trainings_evaluations_other_norms_and_what_was_not_read_say_nothing() -> None:
    assert found(batches(9.0, steps=49), net()) == []
    assert found(batches(9.0, training=False), net()) == []
    assert found(batches(9.0), net(kind="LayerNorm")) == []
    assert found(batches(9.0), net(running=None)) == []


@pytest.mark.parametrize("rms", [5.0, 0.2])
def test_statistics_unlike_the_batches_are_told_with_both(rms: float) -> None:
    (event,) = found(batches(rms), net())
    assert (event.symptom, event.layer_name, event.step) == ("stale_statistics", "norm", 0)
    assert event.metadata == {"times": pytest.approx(5.0), "running": 1.0, "batch": rms}


def test_statistics_of_zero_are_as_stale_as_can_be() -> None:
    (event,) = found(batches(1.0), net(running=0.0))
    assert event.metadata["running"] == 0.0
