from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import outside_write
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.testing import facts, feed, module, optimizer, parameter, parameter_stats, record

NAMES = ("a", "b", "c", "d")


def net(*held: Any, owner: int | None = 0, **more: Any) -> RunFacts:
    return facts(
        *[module(n, k) for k, n in enumerate(NAMES)],
        parameters=tuple(parameter(f"{n}.weight", owner, rms=1.0, **more) for n in NAMES),
        optimizers=held,
    )


ADAM = net(optimizer("Adam", 0.01, momentum=0.9))
SGD = net(optimizer("SGD", 0.1))
found = partial(feed, outside_write, facts=ADAM)


def moves(
    *updates: float | None, first: int = 0, gradient: float = 0.1, every: int = 4, **more: Any
) -> list[StepRecord]:
    """Steps that move the first `every` matrices by so much of their rms of 1, the others by nothing."""
    rates = more.pop("rates", (0.01,))
    return [
        record(
            first + k,
            parameters={
                f"{n}.weight": parameter_stats(gradient, update=u if i < every else 0.0) for i, n in enumerate(NAMES)
            },
            rates=rates,
            **more,
        )
        for k, u in enumerate(updates)
    ]


QUIET = [0.01] * 10


def test_the_largest_step_of_adam_after_a_long_silence_is_its_own() -> None:
    assert found(moves(*QUIET, 0.1, 0.29)) == []


def test_a_large_update_at_a_large_rate_is_the_rates_doing() -> None:
    assert found(moves(*QUIET) + moves(0.9, first=10, rates=(0.05,))) == []


def test_a_decay_that_takes_most_of_the_weights_is_the_optimizers_own() -> None:
    held = net(optimizer("AdamW", 0.01, momentum=0.9, weight_decay=50.0))
    assert found(moves(*[0.8] * 20), facts=held) == []


def test_plain_descent_on_a_gradient_that_explodes_is_its_own() -> None:
    usual = moves(*QUIET, rates=(0.1,))
    assert found(usual + moves(5.0, first=10, gradient=50.0, rates=(0.1,)), facts=SGD) == []


def test_momentum_goes_on_after_the_gradient_is_gone() -> None:
    held = net(optimizer("SGD", 0.1, momentum=0.9))
    coasting = moves(*[1.0] * 6, gradient=10.0, rates=(0.1,)) + moves(9.0, first=6, gradient=0.0, rates=(0.1,))
    assert found(coasting, facts=held) == []


def test_a_step_of_many_backward_passes_may_hold_as_many_optimizer_steps() -> None:
    assert found(moves(*QUIET) + moves(0.9, first=10, backwards=4)) == []


def test_one_matrix_of_four_that_is_filled_anew_is_the_users_own() -> None:
    assert found(moves(*QUIET) + moves(3.0, first=10, every=1)) == []


def test_what_is_not_held_by_a_known_optimizer_has_no_bound() -> None:
    assert found(moves(*QUIET, 3.0), facts=net(optimizer("LBFGS", 1.0))) == []
    assert found(moves(*QUIET, 3.0), facts=net(optimizer("Adam", 0.01), owner=None)) == []
    assert found(moves(*QUIET, 3.0), facts=net()) == []


@pytest.mark.parametrize("more", [{"sampled": False}, {"first_bad": ("gradient", "a")}])
def test_a_step_without_usable_numbers_says_nothing(more: dict[str, Any]) -> None:
    assert found(moves(*QUIET) + moves(3.0, first=10, **more)) == []


def test_weights_that_were_not_measured_and_the_first_steps_say_nothing() -> None:
    assert found(moves(*QUIET, None)) == []
    assert found(moves(3.0, 3.0, 3.0, 3.0, 3.0, 0.01)) == []


@pytest.mark.parametrize(
    ("held", "most"),
    [
        (optimizer("Adam", 0.01, momentum=0.9), 0.1),
        (optimizer("NAdam", 0.01, momentum=0.9), 0.1),
        (optimizer("RMSprop", 0.01), 0.32),
        (optimizer("Lion", 0.01, momentum=0.9), 0.01),
        (optimizer("SGD", 0.01), 0.001),
    ],
)
def test_a_change_beyond_three_times_the_bound_of_its_optimizer_is_told(held: Any, most: float) -> None:
    assert found(moves(*[most] * 10, 2.9 * most), facts=net(held)) == []
    (event,) = found(moves(*[most] * 10, 3.2 * most), facts=net(held))
    assert (event.symptom, event.layer_name, event.step) == ("outside_write", None, 10)
    assert event.metadata["times_lg"] == pytest.approx(0.505, abs=0.01)
    assert (event.metadata["share"], event.metadata["layers"]) == (1.0, 4)


def test_half_of_the_matrices_are_enough() -> None:
    (event,) = found(moves(*QUIET) + moves(3.0, first=10, every=2))
    assert event.metadata["share"] == 0.5


def test_a_series_of_writes_is_one_and_another_after_thirty_quiet_samples_is_news() -> None:
    assert [e.step for e in found(moves(*QUIET, 3.0, 0.01, 3.0, *[0.01] * 29, 3.0))] == [10]
    assert [e.step for e in found(moves(*QUIET, 3.0, *[0.01] * 30, 3.0))] == [10, 41]


def test_at_most_five_are_told() -> None:
    assert len(found(moves(*QUIET, *([3.0] + [0.01] * 30) * 8))) == 5
