from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import short_path
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

NAMES = ("a", "b", "c")
NET = facts(
    *[module(n, k) for k, n in enumerate(NAMES)], parameters=tuple(parameter(f"{n}.weight", rms=0.5) for n in NAMES)
)
found = partial(feed, short_path, facts=NET)


def steps(
    update: float | None, count: int = 100, every: int = 1, first: int = 0, cosine: float = 0.9
) -> list[StepRecord]:
    given = {f"{n}.weight": parameter_stats(update=update) for n in NAMES}
    return [record(first + k * every, parameters=given, cosine=cosine) for k in range(count)]


def test_weights_that_went_a_tenth_of_their_size_have_gone_somewhere() -> None:
    assert found(steps(1e-3)) == []


def test_nineteen_samples_do_not_stand_for_a_run() -> None:
    assert found(steps(1e-5, count=19)) == []


def test_samples_far_apart_stand_for_the_steps_between_them() -> None:
    assert found(steps(4e-4, count=30, every=10)) == []


def test_weights_that_were_not_measured_or_did_not_move_say_nothing() -> None:
    assert found(steps(None)) == []
    assert found(steps(0.0)) == []
    assert found([record(k, parameters={}) for k in range(100)]) == []


def test_matrices_that_are_tiny_or_start_at_zero_are_left_out() -> None:
    for odd in ({"numel": 15}, {"rms": 0.0}):
        given: dict[str, Any] = {"rms": 0.5, **odd}
        net = facts(*NET.modules, parameters=tuple(parameter(f"{n}.weight", **given) for n in NAMES))
        assert found(steps(1e-5), facts=net) == []


def test_steps_that_were_not_sampled_or_were_not_finite_are_left_out() -> None:
    blind = [record(k, sampled=False) for k in range(100)]
    assert found(blind + steps(1e-5, count=19, first=100)) == []


@pytest.mark.parametrize(("update", "path"), [(7.9e-4, 0.079), (1e-5, 0.001)])
def test_updates_that_add_up_to_a_few_percent_are_told_with_their_direction(update: float, path: float) -> None:
    (event,) = found(steps(update, cosine=0.7, first=3))
    assert (event.symptom, event.layer_name, event.step) == ("short_path", None, 3)
    assert event.metadata == {"path": pytest.approx(path), "cosine": 0.7, "steps": 100}


def test_a_direction_that_is_unknown_is_none() -> None:
    blind = [record(r.step, parameters=r.parameters) for r in steps(1e-5)]
    assert found(blind)[0].metadata["cosine"] is None
