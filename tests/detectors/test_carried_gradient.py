from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.detectors import carried_gradient
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, parameter_stats, record

found = partial(feed, carried_gradient)


def steps(*carried: tuple[bool, ...], first: int = 0, **more: Any) -> list[StepRecord]:
    return [
        record(first + k, parameters={f"p{i}": parameter_stats(carried=c) for i, c in enumerate(flags)}, **more)
        for k, flags in enumerate(carried)
    ]


ALL, HALF, ONE, NONE = (True,) * 4, (True, True, False, False), (True, False, False, False), (False,) * 4


def test_one_tensor_of_four_may_be_carried_by_design() -> None:
    assert found(steps(*[ONE] * 20)) == []


def test_two_steps_in_a_row_are_an_accident() -> None:
    assert found(steps(ALL, ALL, NONE, ALL, ALL, NONE)) == []


def test_accumulation_uses_no_gradient_twice_since_nothing_is_consumed_between() -> None:
    assert found(steps(*[ALL] * 20, stepped=False)) == []


def test_a_step_without_any_gradient_is_no_carrying() -> None:
    idle = [record(k, parameters={"p": parameter_stats(gradient=None, carried=True)}) for k in range(10)]
    assert found([*idle, record(10)]) == []


def test_three_steps_in_a_row_are_told_once_and_dated_from_the_first() -> None:
    (event,) = found([*steps(NONE, NONE), *steps(*[HALF] * 10, first=2)])
    assert (event.symptom, event.layer_name, event.step) == ("carried_gradient", None, 2)
    assert event.metadata == {"share": 0.5, "steps": 3}


def test_steps_that_were_not_looked_at_do_not_break_the_row() -> None:
    looked = steps(*[ALL] * 3)
    between = [record(0, sampled=False)]
    (event,) = found([looked[0], *between, looked[1], *between, looked[2]])
    assert event.step == 0


def test_two_tensors_of_five_are_still_the_smaller_part() -> None:
    assert found(steps(*[(True, True, False, False, False)] * 20)) == []
