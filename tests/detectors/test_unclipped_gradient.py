"""A clip by norm that reaches a part of an optimizer's parameters, among all else that changes gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import unclipped_gradient
from neuraldbg.record import ParameterStats, StepRecord
from neuraldbg.testing import facts, feed, module, parameter, parameter_stats, record

NAMES = ("a", "b", "c")
NET = facts(
    *[module(n, k) for k, n in enumerate(NAMES)], parameters=tuple(parameter(f"{n}.weight", rms=1.0) for n in NAMES)
)
found = partial(feed, unclipped_gradient, facts=NET)

Used = Callable[[int, Sequence[float]], Sequence[float]]


def gradients(k: int) -> tuple[float, float, float]:
    """RMS of a hundred elements each; they swing, as gradients do, and c has the largest."""
    swing = 1 + 0.5 * math.sin(1.7 * k)
    return 0.2 * swing, 0.3 * swing, 0.8 * swing


def norm(values: Sequence[float]) -> float:
    return math.sqrt(sum(100 * v * v for v in values))


def steps(
    used: Used, writes: Sequence[int], count: int = 30, first: int = 0, update: float = 1e-3, **more: Any
) -> list[StepRecord]:
    """Trainings of which gradients arrive as in `gradients` and are used as `used` makes them."""
    out = []
    for k in range(first, first + count):
        g = gradients(k)
        alike = len(set(writes)) == 1  # then the norms are not taken
        given: dict[str, ParameterStats] = {}
        for name, arrived, taken, count_of in zip(NAMES, g, used(k, g), writes, strict=True):
            moved = update if name == "c" else 1e-3
            given[f"{name}.weight"] = parameter_stats(
                arrived, used=None if alike else taken, writes=count_of, update=moved
            )
        out.append(record(k, parameters=given, **more))
    return out


def clip(limit: float, *reached: int) -> Used:
    """clip_grad_norm_ over these of the three."""

    def used(k: int, g: Sequence[float]) -> list[float]:
        factor = min(1.0, limit / norm([g[i] for i in reached]))
        return [v * factor if i in reached else v for i, v in enumerate(g)]

    return used


PART = partial(steps, clip(1.0, 0, 1), (1, 1, 0))  # of a, b and c, c is left out


# what is none


def test_gradients_that_nothing_changes_have_no_numbers_to_look_at() -> None:
    given = {f"{n}.weight": parameter_stats(0.5) for n in NAMES}
    assert found([record(k, parameters=given) for k in range(30)]) == []


def test_a_clip_of_all_is_what_it_should_be() -> None:
    assert found(steps(clip(1.0, 0, 1, 2), (1, 1, 1))) == []


def test_a_clip_of_a_part_that_never_binds_changes_nothing() -> None:
    assert found(steps(clip(100.0, 0, 1), (1, 1, 0))) == []


def test_one_that_binds_a_little_changes_little() -> None:
    """The largest norm of a and b is 5.4 and the limit nine tenths of that."""
    assert found(steps(clip(4.9, 0, 1), (1, 1, 0))) == []


def test_a_clip_for_each_group_with_a_limit_of_its_own_reaches_all() -> None:
    def used(k: int, g: Sequence[float]) -> list[float]:
        return [clip(1.0, 0)(k, g)[0], clip(2.0, 1)(k, g)[1], clip(50.0, 2)(k, g)[2]]

    assert found(steps(used, (1, 1, 1))) == []


def test_a_group_that_its_own_limit_reaches_now_and_then_is_clipped() -> None:
    """By hand: only what is over its limit is written to, so that in some steps all are and in some a part."""

    def used(k: int, g: Sequence[float]) -> list[float]:
        return [*clip(1.0, 0, 1)(k, g)[:2], min(g[2], 1.0)]

    over = [gradients(k)[2] > 1.0 for k in range(30)]
    runs = [one for k in range(30) for one in steps(used, (1, 1, int(over[k])), 1, k)]
    assert over[:3] == [False, True, False]
    assert found(runs) == []


def test_a_clip_by_value_of_a_part_has_no_common_factor() -> None:
    def used(k: int, g: Sequence[float]) -> list[float]:
        return [min(g[0], 0.05), min(g[1], 0.05), g[2]]

    assert found(steps(used, (1, 1, 0))) == []


def test_a_part_whose_gradient_is_scaled_on_purpose_keeps_its_factor() -> None:
    assert found(steps(lambda k, g: (0.1 * g[0], 0.1 * g[1], g[2]), (1, 1, 0))) == []


def test_a_scale_that_follows_a_schedule_leaves_no_norm_that_stays() -> None:
    def used(k: int, g: Sequence[float]) -> list[float]:
        return [g[0] * 0.8 * 0.9**k, g[1] * 0.8 * 0.9**k, g[2]]

    assert found(steps(used, (1, 1, 0))) == []


def test_a_scaler_that_divides_all_is_no_clip() -> None:
    """Where an optimizer unscales by itself, its gradients are still scaled when it has stepped."""
    assert found(steps(lambda k, g: [v / 1024 for v in g], (1, 1, 1))) == []
    assert found(steps(lambda k, g: [v / 1024 for v in g], (1, 1, 2))) == []


def test_an_average_over_ranks_differs_from_one_to_the_next() -> None:
    def used(k: int, g: Sequence[float]) -> list[float]:
        return [v * (0.5 + 0.1 * math.sin(k + i)) for i, v in enumerate(g)]

    assert found(steps(used, (1, 1, 1))) == []
    assert found(steps(used, (3, 2, 2))) == []


def test_a_part_left_out_with_less_gradient_than_the_limit_needs_no_clip() -> None:
    assert found(steps(clip(3.0, 1, 2), (0, 1, 1))) == []


def test_two_models_of_which_one_is_clipped_have_an_optimizer_each() -> None:
    """Of one optimizer all are written to alike, and it has no numbers."""
    players = facts(*NET.modules, parameters=(*NET.parameters[:2], parameter("c.weight", 1)))
    assert found(PART(), facts=players) == []


@pytest.mark.parametrize("more", [{"stepped": False}, {"skipped": True}, {"first_bad": ("gradient", "a")}])
def test_steps_without_an_update_or_with_something_not_finite_do_not_count(more: dict[str, Any]) -> None:
    assert found(PART(**more)) == []


def test_two_samples_may_agree_by_chance() -> None:
    assert found(PART(2)) == []


# what is one


def test_a_clip_of_a_part_is_told_since_it_first_bound() -> None:
    assert [clip(1.0, 0, 1)(k, gradients(k))[0] / gradients(k)[0] < 0.9 for k in range(3)] == [True] * 3
    (event,) = found(PART(3))
    assert (event.symptom, event.layer_name, event.step) == ("unclipped_gradient", "c", 0)
    assert event.metadata["parameters"] == ("c.weight",)
    assert event.metadata["share"] == pytest.approx(1 / 3)
    assert event.metadata["limit"] == pytest.approx(1.0)
    assert event.metadata["norm"] == pytest.approx(10 * gradients(2)[2])
    assert event.metadata["update_lg"] == pytest.approx(-3) == event.metadata["clipped_update_lg"]
    assert event.metadata["thrown"] is None


def test_it_is_told_once() -> None:
    assert len(found(PART(300))) == 1


def test_a_clip_that_begins_to_bind_late_is_told_since_then() -> None:
    early = steps(clip(100.0, 0, 1), (1, 1, 0), 20)
    (event,) = found([*early, *PART(10, first=20)])
    assert event.step == 20


def test_a_part_that_is_unscaled_and_not_clipped_is_left_out_as_well() -> None:
    """Unscaling writes to all once; the clip writes to its own once more."""
    assert len(found(steps(clip(1.0, 0, 1), (2, 2, 1)))) == 1


def test_the_layer_is_the_one_outside_with_the_largest_gradient() -> None:
    (event,) = found(steps(clip(0.5, 0), (1, 0, 0)))
    assert (event.layer_name, event.metadata["parameters"]) == ("c", ("b.weight", "c.weight"))


def test_a_step_of_the_size_of_the_weights_is_told_with_it() -> None:
    (event,) = found(PART(10, update=0.25))
    assert event.metadata["thrown"] == 0


def test_a_rate_that_the_clip_would_not_make_small_enough_throws_by_itself() -> None:
    (event,) = found(PART(10, update=5.0))
    assert event.metadata["thrown"] is None


def test_a_later_step_of_that_size_is_told_again() -> None:
    both = found([*PART(10), *PART(1, first=10, update=0.25), *PART(30, first=11)])
    assert [(e.step, e.metadata["thrown"]) for e in both] == [(0, None), (10, 10)]


def test_steps_of_that_size_are_told_twenty_apart_and_five_times_at_most() -> None:
    told = [e.metadata["thrown"] for e in found(PART(300, update=0.25))]
    assert told == [0, 20, 40, 60, 80]


def test_a_clip_that_is_made_to_reach_it_ends_it() -> None:
    """Then c is clipped by itself, and a and b no more."""
    both = found([*PART(10), *steps(clip(1.0, 2), (0, 0, 1), 10, first=10)])
    assert [(e.step, e.is_recovery) for e in both] == [(0, False), (10, True)]


def test_a_step_in_which_all_are_written_to_alike_ends_it_too() -> None:
    """A limit by hand that c goes over for the first time: it had one after all."""
    both = found([*PART(10), *steps(clip(1.0, 0, 1, 2), (1, 1, 1), 5, first=10)])
    assert [(e.step, e.is_recovery) for e in both] == [(0, False), (10, True)]
