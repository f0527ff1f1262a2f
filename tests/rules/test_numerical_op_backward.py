from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.numerical_op_backward import numerical_op_backward
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, numerical_op_backward)
explains = partial(check_explains, numerical_op_backward)

MODEL = facts(module("lin1", 0), module("relu", 1, "relu"), module("lin2", 2), module("distance", 3, parameters=0))


def bad(**changes: Any) -> SemanticEvent:
    given = {"forward_finite": True, "loss_finite": True, "growth_lg": 0.05, "dtype": "float32", **changes}
    return observed("nonfinite_gradient", 90, "lin2", **given)


def test_a_gradient_that_grew_before_is_an_explosion() -> None:
    silent(run(bad(growth_lg=2.5), facts=MODEL))


def test_a_loss_that_is_not_finite_comes_first() -> None:
    silent(run(bad(loss_finite=False), facts=MODEL))


def test_float16_is_to_blame_for_its_own_limit() -> None:
    silent(run(bad(dtype="float16"), facts=MODEL))


def test_the_module_between_the_last_layer_and_the_loss_is_named() -> None:
    explains(run(bad(), facts=MODEL), layer="distance", step=90, failure="exploding_gradients")


def test_a_rectifier_has_no_derivative_that_fails() -> None:
    ends = facts(module("lin2", 0), module("relu", 1, "relu"))
    explains(run(bad(), facts=ends), layer="lin2")


def test_without_facts_the_place_itself_is_named() -> None:
    explains(run(bad()), layer="lin2")


def test_where_the_operator_is_known_its_own_module_is_named() -> None:
    known = bad(operator="sqrt", file="net.py", line=7, place="model")
    assert "sqrt at net.py:7" in explains(run(known, facts=MODEL), layer="lin2").summary


def test_values_that_the_forward_pass_made_huge_are_to_blame_for_their_derivative() -> None:
    silent(run(observed("function_growth", 90, "power", gain_lg=2.0), bad(), facts=MODEL))
    explains(run(observed("function_growth", 91, "power", gain_lg=2.0), bad(), facts=MODEL), layer="distance")
