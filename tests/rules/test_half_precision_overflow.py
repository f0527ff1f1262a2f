from __future__ import annotations

from functools import partial

from neuraldbg.events import recovered
from neuraldbg.rules.half_precision_overflow import half_precision_overflow
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, half_precision_overflow)
explains = partial(check_explains, half_precision_overflow)


def test_a_float32_gradient_is_not_the_formats_doing() -> None:
    silent(run(observed("nonfinite_gradient", 90, "fc", dtype="float32", headroom_lg=-30.0)))


def test_a_gradient_far_below_the_limit_has_another_cause() -> None:
    silent(run(observed("nonfinite_gradient", 90, "fc", dtype="float16", headroom_lg=-3.0)))


def test_bfloat16_has_the_range_of_float32() -> None:
    silent(run(observed("nonfinite_gradient", 90, "fc", dtype="bfloat16", headroom_lg=-0.1)))


def test_a_gradient_that_reached_the_limit() -> None:
    explains(
        run(observed("nonfinite_gradient", 105, "fc", dtype="float16", headroom_lg=-0.2)),
        step=105,
        failure="exploding_gradients",
    )


def test_an_output_that_reached_the_limit() -> None:
    over = observed("nonfinite_activation", 7, "fc", dtype="torch.float16", inf_share=0.1, largest=60000.0)
    explains(run(over), layer="fc", step=7)


def test_a_float16_value_that_is_no_number_for_another_reason_did_not_overflow() -> None:
    silent(run(observed("nonfinite_activation", 9, "fc", dtype="float16", largest=430.0, detail="zero_divisor")))


def test_an_operator_that_made_infinity_of_finite_float16_values() -> None:
    product = observed(
        "nonfinite_activation", 9, "fc", dtype="float16", largest=430.0, operator="mul", detail="overflow"
    )
    explains(run(product), layer="fc", step=9, failure="exploding_gradients")


SKIPPED = observed("all_skipped", 10, steps=40, scale=4.0)


def test_a_scaler_that_found_its_scale_in_the_end_is_fine() -> None:
    silent(run(SKIPPED, recovered(SKIPPED, 60)))


def test_a_scaler_that_skips_every_step() -> None:
    claim = explains(run(SKIPPED), step=10, failure="optimizer_instability")
    assert claim.summary == "every step from 10 on was skipped, so nothing was learned"
