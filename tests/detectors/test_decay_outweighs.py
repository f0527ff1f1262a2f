from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import decay_outweighs
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.testing import facts, feed, module, optimizer, parameter, parameter_stats, record

NAMES = ("a", "b", "c")


def net(kind: str, decay: float, rate: float = 0.01, owner: int | None = 0) -> RunFacts:
    return facts(
        *[module(n, k) for k, n in enumerate(NAMES)],
        parameters=tuple(parameter(f"{n}.weight", owner, rms=1.0) for n in NAMES),
        optimizers=(optimizer(kind, rate, weight_decay=decay),),
    )


HEAVY = net("AdamW", 2.0)  # takes 2 % of the weights a step
found = partial(feed, decay_outweighs, facts=HEAVY)


def steps(count: int, first: int = 0, rates: tuple[float, ...] = (0.01,), **stats: Any) -> list[StepRecord]:
    given = {f"{n}.weight": parameter_stats(**stats) for n in NAMES}
    return [record(first + k, parameters=given, rates=rates) for k in range(count)]


def test_weights_that_move_further_than_decay_takes_are_learning() -> None:
    assert found(steps(30, update=0.021)) == []


def test_a_usual_decay_on_weights_that_have_come_to_rest_is_healthy() -> None:
    assert found(steps(30, update=1e-6), facts=net("AdamW", 0.05)) == []
    assert found(steps(30, update=1e-6), facts=net("SGD", 0.99)) == []


def test_a_rate_that_has_come_down_takes_the_decay_with_it() -> None:
    assert found(steps(30, rates=(0.004,), update=1e-4)) == []


def test_a_gradient_above_the_decay_that_is_added_to_it_has_its_way() -> None:
    assert found(steps(30, gradient=0.11), facts=net("Adam", 0.1)) == []


def test_a_balance_of_nine_samples_is_a_moment() -> None:
    assert found(steps(9, update=0.001) + steps(1, 9, update=0.03) + steps(9, 10, update=0.001)) == []


def test_without_decay_owner_or_numbers_there_is_nothing_to_compare() -> None:
    assert found(steps(30, update=1e-6), facts=net("AdamW", 0.0)) == []
    assert found(steps(30, update=1e-6), facts=net("AdamW", 2.0, owner=None)) == []
    assert found(steps(30, update=None, gradient=None)) == []
    assert found(steps(30, update=1e-6, gradient=1e-9), facts=net("LBFGS", 2.0)) == []
    assert found([record(k, parameters={}, rates=(0.01,)) for k in range(30)]) == []


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Lion"])
def test_decay_beside_the_gradient_that_takes_more_than_the_weights_move(kind: str) -> None:
    (event,) = found(steps(5, update=0.05) + steps(30, 5, update=0.016), facts=net(kind, 2.0))
    assert (event.symptom, event.layer_name, event.step) == ("decay_outweighs", None, 5)
    assert event.metadata["ratio"] == pytest.approx(1.25)
    assert (event.metadata["taken"], event.metadata["inside"]) == (pytest.approx(0.02), False)


@pytest.mark.parametrize("kind", ["Adam", "RMSprop", "Adagrad"])
def test_decay_inside_the_gradient_that_is_larger_than_it(kind: str) -> None:
    (event,) = found(steps(30, gradient=0.05), facts=net(kind, 0.1))
    assert event.metadata["ratio"] == pytest.approx(2.0)
    assert (event.metadata["taken"], event.metadata["inside"]) == (None, True)


def test_one_matrix_of_three_is_not_the_model() -> None:
    mixed = [
        record(
            k,
            parameters={f"{n}.weight": parameter_stats(update=0.001 if n == "a" else 0.05) for n in NAMES},
            rates=(0.01,),
        )
        for k in range(30)
    ]
    assert found(mixed) == []
