from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import violent_update
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

NAMES = ("a", "b", "c")
NET = facts(
    *[module(n, k) for k, n in enumerate(NAMES)], parameters=tuple(parameter(f"{n}.weight", rms=0.5) for n in NAMES)
)
found = partial(feed, violent_update, facts=NET)


def ratios(*updates: float | tuple[float | None, ...] | None, first: int = 0, **more: Any) -> list[StepRecord]:
    each = [u if isinstance(u, tuple) else (u,) * 3 for u in updates]
    return [
        record(
            first + k,
            parameters={f"{n}.weight": parameter_stats(update=u) for n, u in zip(NAMES, step, strict=True)},
            **more,
        )
        for k, step in enumerate(each)
    ]


def test_updates_of_up_to_a_fifth_of_the_weights_are_large_but_held() -> None:
    assert found(ratios(*[0.19] * 60)) == []


def test_one_tensor_of_three_is_not_the_model() -> None:
    assert found(ratios(*[(5.0, 0.01, 0.01)] * 60)) == []


def test_updates_that_were_not_measured_or_not_made_are_left_out() -> None:
    assert found(ratios(None, 0.0, math.nan, math.inf)) == []
    assert found(ratios(5.0, sampled=False)) == []


@pytest.mark.parametrize("odd", [{"rms": 0.0}, {"rms": None}, {"numel": 15}, {"dims": 1}])
def test_tensors_that_are_tiny_or_start_at_zero_jump_at_random(odd: dict[str, Any]) -> None:
    given = {"rms": 0.5, **odd}
    net = facts(*NET.modules, parameters=tuple(parameter(f"{n}.weight", **given) for n in NAMES))
    assert found(ratios(*[4.0] * 10), facts=net) == []


def test_an_update_as_large_as_the_weights_is_told_with_its_size_and_largest_layer() -> None:
    (event,) = found(ratios(*[0.01] * 20, (0.1, 1.0, 2.0), rates=(0.1,)))
    assert (event.symptom, event.layer_name, event.step) == ("violent_update", None, 20)
    assert event.metadata["update_lg"] == pytest.approx(0.0)
    assert (event.metadata["largest"], event.metadata["layers"], event.metadata["rate"]) == ("c", 3, 0.1)
    assert event.metadata["at_start"] is False and event.metadata["ramping"] is False
    assert event.metadata["clean"] is True


def test_one_at_the_start_says_so() -> None:
    (event,) = found(ratios(0.5))
    assert (event.step, event.metadata["at_start"], event.metadata["rate"]) == (0, True, 0.0)


def test_one_while_the_rate_ramps_says_so() -> None:
    steps = [record(k, rates=(0.1 * k,), parameters=ratios(0.5 if k == 9 else 0.01)[0].parameters) for k in range(10)]
    (event,) = found(steps)
    assert event.metadata["ramping"] is True


def test_a_series_of_them_is_one_and_another_after_thirty_quiet_samples_is_news() -> None:
    assert [e.step for e in found(ratios(*[0.5] * 10, *[0.01] * 29, 0.5))] == [0]
    assert [e.step for e in found(ratios(*[0.5] * 10, *[0.01] * 30, 0.5))] == [0, 40]


def test_at_most_five_are_told() -> None:
    assert len(found(ratios(*([0.5] + [0.01] * 30) * 9))) == 5


@pytest.mark.parametrize(("first", "start"), [(4, True), (5, False)])
def test_just_beyond_a_fifth_it_is_told_and_the_first_five_steps_are_the_start(first: int, start: bool) -> None:
    sixteen = facts(*NET.modules, parameters=tuple(parameter(f"{n}.weight", rms=0.5, numel=16) for n in NAMES))
    (event,) = found(ratios(0.21, first=first), facts=sixteen)
    assert event.metadata["at_start"] is start
