from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import lost_gradient
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, parameter, parameter_stats, record

NAMES = ("a", "b", "c")
NET = facts(*[module(n, k) for k, n in enumerate(NAMES)], parameters=tuple(parameter(f"{n}.weight") for n in NAMES))
found = partial(feed, lost_gradient, facts=NET)


def steps(
    count: int, *gradients: float | None, first: int = 0, ran: tuple[str, ...] = NAMES, **more: Any
) -> list[StepRecord]:
    given = {f"{n}.weight": parameter_stats(g) for n, g in zip(NAMES, gradients, strict=True)}
    layers = {n: layer_stats() for n in ran}
    return [record(first + k, parameters=given, layers=layers, **more) for k in range(count)]


WHOLE = steps(20, 0.1, 0.1, 0.1)


def test_a_gradient_that_is_always_there_is_fine() -> None:
    assert found(WHOLE) == []


def test_one_that_was_never_there_is_told_by_another_detector() -> None:
    assert found(steps(60, None, 0.1, 0.1)) == []


def test_nine_passes_without_it_may_be_chance() -> None:
    assert found([*WHOLE, *steps(9, None, 0.1, 0.1, first=20), *steps(20, 0.1, 0.1, 0.1, first=29)]) == []


def test_an_expert_that_gets_no_samples_does_not_run() -> None:
    assert found([*WHOLE, *steps(60, None, 0.1, 0.1, first=20, ran=("b", "c"))]) == []


@pytest.mark.parametrize("more", [{"stepped": False}, {"backwards": 0}, {"sampled": False}])
def test_steps_without_an_update_or_a_look_do_not_count(more: dict[str, Any]) -> None:
    assert found([*WHOLE, *steps(60, None, 0.1, 0.1, first=20, **more)]) == []


def test_a_player_whose_optimizer_rests_waits_for_its_turn() -> None:
    players = facts(*NET.modules, parameters=(parameter("a.weight", 1), *NET.parameters[1:]))
    assert found([*WHOLE, *steps(60, None, 0.1, 0.1, first=20)], facts=players) == []


def test_what_was_frozen_or_given_to_no_optimizer_needs_none() -> None:
    for alone in (parameter("a.weight", trainable=False), parameter("a.weight", None)):
        net = facts(*NET.modules, parameters=(alone, *NET.parameters[1:]))
        assert found([*WHOLE, *steps(60, None, 0.1, 0.1, first=20)], facts=net) == []


def test_a_gradient_that_ends_is_told_since_then_in_the_last_layer_without_one() -> None:
    (event,) = found([*WHOLE, *steps(12, None, None, 0.1, first=20)])
    assert (event.symptom, event.layer_name, event.step) == ("lost_gradient", "b", 20)
    assert event.metadata == {"share": 2 / 3, "parameters": ("a.weight", "b.weight")}


def test_one_that_comes_back_after_all_ends_it() -> None:
    both = found([*WHOLE, *steps(12, None, 0.1, 0.1, first=20), *steps(20, 0.1, 0.1, 0.1, first=32)])
    assert [(e.step, e.is_recovery) for e in both] == [(20, False), (32, True)]
