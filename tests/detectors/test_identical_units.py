from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import identical_units
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, record

NAMES = ("a", "b", "c", "d")
NET = facts(
    module("embed", 0, kind="Embedding"),
    *[module(n, k + 1) for k, n in enumerate(NAMES)],
    parameters=tuple(parameter(f"{n}.weight") for n in ("embed", *NAMES)),
)
found = partial(feed, identical_units, facts=NET)


def first(*alike: str, step: int = 0, **more: Any) -> StepRecord:
    return record(step, alike=tuple(f"{n}.weight" for n in alike), **more)


def test_weights_that_differ_from_unit_to_unit_are_usual() -> None:
    assert found([first(), first(step=1)]) == []


@pytest.mark.parametrize("alike", [("a",), ("embed", "a")])
def test_one_layer_that_starts_even_may_be_meant(alike: tuple[str, ...]) -> None:
    assert found([first(*alike)]) == []


def test_a_minority_of_the_layers_may_be_meant() -> None:
    wide = facts(*NET.modules, module("e", 6), parameters=(*NET.parameters, parameter("e.weight")))
    assert found([first("a", "b")], facts=wide) == []


def test_what_is_first_seen_in_mid_training_is_no_start() -> None:
    assert found([first("a", "b", "c", step=40)]) == []


def test_a_step_that_is_not_sampled_is_waited_out() -> None:
    (event,) = found([first(sampled=False), first("a", "b", step=1)])
    assert event.step == 1


def test_layers_whose_units_start_alike_are_told_once_in_the_first() -> None:
    (event,) = found([first("b", "c", "d"), first("b", "c", "d", step=1)])
    assert (event.symptom, event.layer_name, event.step) == ("identical_units", "b", 0)
    assert event.metadata == {"share": 0.75, "layers": 3}
