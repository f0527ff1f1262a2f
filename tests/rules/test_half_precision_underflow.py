from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.half_precision_underflow import half_precision_underflow
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, half_precision_underflow)
explains = partial(check_explains, half_precision_underflow)


def bad(**changes: Any) -> SemanticEvent:
    return observed(
        "nonfinite_weight", 0, "mix.0", **{"gradient_finite": True, "dtype": "float16", "eps": 1e-8, **changes}
    )


def test_an_epsilon_that_float16_can_hold_is_fine() -> None:
    silent(run(bad(eps=1e-4)))


def test_float32_weights_hold_the_usual_epsilon() -> None:
    silent(run(bad(dtype="float32")))


def test_a_gradient_that_was_not_finite_explains_the_weight() -> None:
    silent(run(bad(gradient_finite=False)))


def test_finite_gradients_and_weights_that_are_not() -> None:
    explains(run(bad()), layer="mix.0", step=0, failure="optimizer_instability")


def stuck(**changes: Any) -> SemanticEvent:
    return observed("stuck_parameter", 0, "fc1", **{"share": 0.5, "owned": True, "dtype": "bfloat16", **changes})


def test_float32_weights_that_stand_still_have_another_cause() -> None:
    silent(run(stuck(dtype="float32")))


def test_weights_that_no_optimizer_holds_stand_still_in_any_format() -> None:
    silent(run(stuck(owned=False)))


def test_bfloat16_weights_that_an_optimizer_holds_and_that_never_move() -> None:
    claim = explains(run(stuck()), layer="fc1", step=0, failure="optimizer_instability")
    assert claim.summary == "50% of the bfloat16 parameters get gradients and never move"
