from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import constant_output
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

NET = facts(module("fc1", 0), module("fc2", 1), module("head", 2, position="output"))
found = partial(feed, constant_output, facts=NET)


def spreads(count: int, first: int = 0, **by_layer: float | None) -> list[StepRecord]:
    return [record(first + k, layers={n: layer_stats(spread=s) for n, s in by_layer.items()}) for k in range(count)]


def test_an_output_that_varies_a_little_varies() -> None:
    assert found(spreads(60, fc1=0.5, fc2=0.01, head=1.1e-4)) == []


def test_a_constant_branch_with_an_output_that_varies_is_a_branch_that_started_at_zero() -> None:
    assert found(spreads(60, fc1=0.5, fc2=0.0, head=0.3)) == []


def test_an_output_that_is_constant_for_the_first_ten_steps_only_started_at_zero() -> None:
    assert found([*spreads(10, fc1=0.5, fc2=0.4, head=0.0), *spreads(50, 10, fc1=0.5, fc2=0.4, head=0.3)]) == []


def test_two_constant_steps_now_and_then_are_no_collapse() -> None:
    pair = [*spreads(2, 20, fc1=0.0, fc2=0.0, head=0.0), *spreads(1, 22, fc1=0.5, fc2=0.4, head=0.3)]
    assert found(pair * 10) == []


def test_single_samples_have_no_spread() -> None:
    assert found(spreads(60, fc1=None, fc2=None, head=None)) == []


def test_an_output_whose_spread_is_not_a_number_is_not_constant() -> None:
    """Logits masked with minus infinity."""
    assert found(spreads(60, fc1=0.0, fc2=0.4, head=math.nan)) == []


def test_a_constant_output_is_told_once_with_the_lowest_constant_layer() -> None:
    (event,) = found([*spreads(20, fc1=0.5, fc2=0.4, head=0.3), *spreads(20, 20, fc1=0.5, fc2=1e-6, head=0.0)])
    assert (event.symptom, event.layer_name, event.step) == ("constant_output", "fc2", 20)
    assert event.metadata["spread_lg"] == pytest.approx(-6.0)
    assert (event.metadata["position"], event.metadata["layers"], event.metadata["at_start"]) == ("hidden", 2, False)


def test_a_net_that_is_constant_from_the_start_is_told_after_ten_steps_and_dated_from_the_first() -> None:
    (event,) = found(spreads(20, fc1=0.5, fc2=0.5, head=0.0))
    assert (event.layer_name, event.step, event.metadata["at_start"]) == ("head", 0, True)
    assert event.metadata["spread_lg"] == -20.0


def test_a_model_whose_output_layer_is_unknown_is_judged_by_its_last_layer() -> None:
    plain = facts(module("fc1", 0), module("fc2", 1))
    assert found(spreads(60, fc1=0.0, fc2=0.3), facts=plain) == []
    (event,) = found(spreads(60, fc1=0.3, fc2=0.0), facts=plain)
    assert event.layer_name == "fc2"


def test_three_constant_steps_are_enough_from_the_tenth_on() -> None:
    assert len(found(spreads(3, 8, fc1=0.5, fc2=0.5, head=9e-5))) == 1
