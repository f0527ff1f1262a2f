from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.numerical_op_forward import numerical_op_forward
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, numerical_op_forward)
explains = partial(check_explains, numerical_op_forward)


def bad(step: int = 0, **changes: Any) -> SemanticEvent:
    given = {"inputs_finite": True, "inf_share": 0.3, "nan_share": 0.0, "largest": 1e10, "dtype": "float32", **changes}
    return observed("nonfinite_activation", step, "exp", **given)


def test_nan_out_of_moderate_values_is_a_division() -> None:
    silent(run(bad(inf_share=0.0, nan_share=0.1, largest=5.0)))


def test_the_end_of_an_explosion_is_no_cause() -> None:
    silent(run(observed("exploding_gradient", 10, growth_lg=3.0), bad(20)))


def test_an_update_as_large_as_the_weights_comes_first() -> None:
    silent(run(observed("violent_update", 0, "lin", update_lg=0.5), bad(1)))


def test_a_recurrent_state_that_grew_comes_first() -> None:
    silent(run(observed("recurrent_growth", 0, "rnn", rms_lg=20.0), bad(0)))


def test_float16_is_to_blame_for_its_own_limit() -> None:
    silent(run(bad(dtype="float16")))


def test_nan_in_the_data_comes_first() -> None:
    silent(run(observed("nan_input", 0, share=0.1), bad(0)))


def test_an_exponential_that_overflows_in_the_first_batch() -> None:
    explains(run(bad()), layer="exp", step=0, failure="exploding_gradients")


def test_a_logarithm_named_by_its_operator() -> None:
    log = bad(operator="log", inf_share=0.0, nan_share=0.1, largest=5.0)
    assert "operator log" in explains(run(log), layer="exp").summary


def test_bfloat16_has_the_range_of_float32() -> None:
    explains(run(bad(dtype="bfloat16")), layer="exp")


def test_a_loss_that_grew_too_large_is_another_cause() -> None:
    silent(run(observed("loss_nonfinite", 0, operator="mse_loss", place="loss", detail="overflow")))


def test_a_logarithm_of_zero_in_the_loss() -> None:
    loss = observed("loss_nonfinite", 3, operator="log", place="loss", detail="zero_argument", file="a.py", line=2)
    assert "log in the loss, backward called at a.py:2" in explains(run(loss), layer=None, step=3).summary


STEEP = observed("function_growth", 3, "power", gain_lg=1.4, largest=40.0, kind="Power")


def test_a_steep_function_that_learns_is_fine() -> None:
    silent(run(STEEP, series={"skill": [0.97**i for i in range(100)]}))


def test_a_jump_that_stays_near_chance_is_no_harm_of_a_steep_function() -> None:
    silent(run(STEEP, observed("loss_spike", 40, over_chance=1.5, before_over_chance=0.3)))


def test_a_steep_function_after_which_the_loss_jumps_far_above_chance() -> None:
    jump = observed("loss_spike", 40, over_chance=80.0, before_over_chance=0.9)
    explains(run(STEEP, jump), layer="power", step=3, failure="exploding_gradients")


def test_a_steep_function_from_which_the_loss_starts_far_above_chance() -> None:
    slow = {"skill": [max(0.8, 5000 * 0.8**i) for i in range(100)]}
    explains(run(STEEP, series=slow), layer="power", step=3)


def test_an_overflow_of_a_function_that_was_steep_before_begins_there() -> None:
    steep = observed("function_growth", 6, "exp", gain_lg=1.1)
    explains(run(steep, bad(80)), layer="exp", step=6)
    elsewhere = observed("function_growth", 6, "power", gain_lg=1.1)
    explains(run(elsewhere, bad(80)), layer="exp", step=80)


def test_a_loss_of_unknown_chance_that_a_steep_function_throws_twice() -> None:
    steep = observed("function_growth", 0, "power", gain_lg=1.5)
    once, twice = (observed("loss_spike", k, "", over_chance=None) for k in (20, 50))
    silent(run(steep, once))
    explains(run(steep, once, twice), layer="power", step=0)
