from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import zero_gradient
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

NAMES = ("a", "b", "c", "d")
NET = facts(*[module(n, k) for k, n in enumerate(NAMES)], parameters=tuple(parameter(f"{n}.weight") for n in NAMES))
found = partial(feed, zero_gradient, facts=NET)


def steps(count: int, *gradients: float | None, first: int = 0, every: int = 1, **more: Any) -> list[StepRecord]:
    given = {f"{n}.weight": parameter_stats(g) for n, g in zip(NAMES, gradients, strict=True)}
    return [record(first + k * every, parameters=given, **more) for k in range(count)]


# exactly zero


def test_tiny_gradients_are_not_zero() -> None:
    assert found(steps(60, 1e-30, 1e-30, 1e-30, 1e-30)) == []


def test_an_idle_head_or_expert_is_usual() -> None:
    assert found(steps(60, 0.1, 0.1, 0.1, 0.0)) == []


def test_zeros_of_the_first_step_are_the_start_of_an_adapter() -> None:
    assert found([*steps(4, 0.0, 0.1, 0.0, 0.1), *steps(60, 0.1, 0.1, 0.1, 0.1, first=4)]) == []


def test_zeros_that_are_interrupted_are_not_a_state() -> None:
    both = [*steps(4, 0.0, 0.0, 0.0, 0.0), *steps(1, 0.1, 0.1, 0.1, 0.1)]
    assert found(both * 10) == []


@pytest.mark.parametrize("more", [{"backwards": 0}, {"sampled": False}, {"first_bad": ("loss", None)}])
def test_steps_that_say_nothing_about_gradients_are_left_out(more: dict[str, Any]) -> None:
    assert found(steps(60, 0.0, 0.0, 0.0, 0.0, **more)) == []


def test_frozen_parameters_need_no_gradient() -> None:
    frozen = facts(*NET.modules, parameters=tuple(parameter(f"{n}.weight", trainable=False) for n in NAMES))
    assert found(steps(60, 0.0, 0.0, None, None), facts=frozen) == []


@pytest.mark.parametrize("every", [1, 10])
def test_zero_gradients_are_told_once_in_the_last_layer_that_gets_none(every: int) -> None:
    (event,) = found([*steps(3, 0.1, 0.1, 0.1, 0.1), *steps(20, 0.0, 0.0, 0.1, 0.1, first=3, every=every)])
    assert (event.symptom, event.layer_name, event.step) == ("zero_gradient", "b", 3)
    assert event.metadata == {"share": 0.5, "parameters": ("a.weight", "b.weight")}


# never there


def test_a_gradient_that_was_there_once_is_used() -> None:
    assert found([*steps(1, 0.1, 0.1, 0.1, 0.1), *steps(60, None, 0.1, 0.1, 0.1, first=1)]) == []


def test_a_model_without_any_gradient_is_not_being_trained_here() -> None:
    assert found(steps(60, None, None, None, None)) == []


def test_a_layer_that_never_ran_is_left_out_on_purpose() -> None:
    unused = facts(module("a", None), *NET.modules[1:], parameters=NET.parameters)
    assert found(steps(60, None, 0.1, 0.1, 0.1), facts=unused) == []


def test_four_passes_without_a_gradient_may_be_a_turn() -> None:
    assert found([*steps(4, None, 0.1, 0.1, 0.1), *steps(60, 0.1, 0.1, 0.1, 0.1, first=4)]) == []


@pytest.mark.parametrize("every", [1, 10])
def test_parameters_that_no_gradient_reaches_are_told_since_the_first_pass(every: int) -> None:
    (event,) = found(steps(20, None, None, 0.1, 0.1, every=every))
    assert (event.symptom, event.layer_name, event.step) == ("no_gradient", "b", 0)
    assert event.metadata == {"share": 0.5, "parameters": ("a.weight", "b.weight"), "without_grad": False}


def test_five_samples_of_a_third_of_the_tensors_are_enough() -> None:
    three = facts(*NET.modules[:3], parameters=NET.parameters[:3])
    assert len(found(steps(5, 0.0, 0.1, 0.1, 0.1), facts=three)) == 1
    assert len(found(steps(5, None, 0.1, 0.1, 0.1))) == 1


def test_a_player_whose_turn_comes_late_has_its_gradient_after_all() -> None:
    events = found([*steps(8, None, 0.1, 0.1, 0.1), *steps(4, 0.1, 0.1, 0.1, 0.1, first=8)])
    assert [(e.symptom, e.step, e.is_recovery) for e in events] == [("no_gradient", 0, False), ("no_gradient", 8, True)]


def test_a_module_that_never_ran_has_no_gradient_to_miss_and_one_that_ran_without_gradients_has() -> None:
    known = (parameter("a.weight"), parameter("b.weight"))
    given = {"a.weight": parameter_stats(None), "b.weight": parameter_stats(0.1)}
    records = [record(k, parameters=given) for k in range(20)]
    never = facts(module("a", None), module("b", 0), parameters=known)
    assert found(records, facts=never) == []
    cut = facts(module("a", None, without_grad=True), module("b", 0), parameters=known)
    (event,) = found(records, facts=cut)
    assert (event.symptom, event.layer_name, event.metadata["without_grad"]) == ("no_gradient", "a", True)
