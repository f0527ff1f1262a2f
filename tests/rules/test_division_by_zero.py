from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.division_by_zero import division_by_zero
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, division_by_zero)
explains = partial(check_explains, division_by_zero)


def bad(**changes: Any) -> SemanticEvent:
    given = {"inputs_finite": True, "inf_share": 0.0, "nan_share": 0.1, "largest": 4.5, **changes}
    return observed("nonfinite_activation", 75, "conv1", **given)


def test_large_values_before_it_are_an_overflow() -> None:
    silent(run(bad(largest=1e9)))


def test_infinities_beside_it_are_an_overflow() -> None:
    silent(run(bad(inf_share=0.2)))


def test_a_logarithm_is_no_division() -> None:
    silent(run(bad(operator="log")))


def test_nothing_known_of_the_values_before_is_no_evidence() -> None:
    silent(run(observed("nonfinite_activation", 75, "conv1", inputs_finite=True)))


def test_a_mean_over_nothing() -> None:
    explains(run(bad()), layer="conv1", step=75, failure="data_anomaly")


def test_a_power_of_zero_named_by_its_operator() -> None:
    explains(run(bad(operator="pow", inf_share=0.1)), layer="conv1")


def test_an_operator_that_overflowed_divides_by_no_zero() -> None:
    silent(run(bad(operator="div", detail="overflow")))


def test_a_loss_of_unknown_operator_is_no_evidence() -> None:
    silent(run(observed("loss_nonfinite", 75, operator=None, place="loss", detail="")))


def test_the_operator_and_its_line_are_said() -> None:
    claim = explains(
        run(bad(operator="div", detail="zero_divisor", file="net.py", line=7, place="model")), layer="conv1"
    )
    assert claim.summary == "operator div at net.py:7; the divisor holds zeros"


def test_a_mean_over_nothing_in_the_loss() -> None:
    loss = observed("loss_nonfinite", 75, operator="mean", detail="empty", file="train.py", line=9, place="loss")
    claim = explains(run(loss), layer=None, step=75)
    assert claim.summary == "operator mean in the loss, backward called at train.py:9; it is taken over nothing"
