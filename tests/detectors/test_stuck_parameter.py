from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import stuck_parameter
from neuraldbg.record import ParameterStats, RunFacts, StepRecord
from neuraldbg.testing import facts, feed, module, optimizer, parameter, parameter_stats, record

NET = facts(module("base", 0), module("head", 1), parameters=(parameter("base.weight", None), parameter("head.weight")))
found = partial(feed, stuck_parameter, facts=NET)
STILL = parameter_stats(moved=False)


def steps(count: int, base: ParameterStats, head: ParameterStats, first: int = 0, **more: Any) -> list[StepRecord]:
    return [record(first + k, parameters={"base.weight": base, "head.weight": head}, **more) for k in range(count)]


MOVING = parameter_stats()


# one that never moves


def test_parameters_that_move_are_trained() -> None:
    assert found(steps(60, MOVING, MOVING)) == []


def test_seven_steps_without_a_move_are_not_enough() -> None:
    assert found([*steps(7, STILL, MOVING), *steps(40, MOVING, MOVING, 7)]) == []


def test_a_parameter_that_moved_once_is_trained_and_may_rest() -> None:
    assert found([*steps(1, MOVING, MOVING), *steps(40, STILL, MOVING, 1)]) == []


@pytest.mark.parametrize("gradient", [None, 0.0, 1e-5], ids=["none", "zero", "lost in rounding"])
def test_a_parameter_that_gets_no_gradient_to_speak_of_cannot_move(gradient: float | None) -> None:
    assert found(steps(40, parameter_stats(gradient, moved=False), parameter_stats(0.1))) == []


@pytest.mark.parametrize(
    ("kind", "gradient", "told"), [("SGD", 1e-7, False), ("SGD", 1e-3, True), ("Adam", 1e-7, True)]
)
def test_a_plain_step_below_the_last_digit_of_the_weights_is_no_stuck_parameter(
    kind: str, gradient: float, told: bool
) -> None:
    both = tuple(parameter(name, dtype="float32") for name in ("base.weight", "head.weight"))
    net = facts(parameters=both, optimizers=(optimizer(kind),))
    weak = parameter_stats(gradient, moved=False, weight=1.0)
    assert bool(found(steps(40, weak, parameter_stats(gradient), rates=(0.1,)), facts=net)) is told


def test_what_was_not_watched_did_not_stand_still() -> None:
    assert found(steps(40, parameter_stats(moved=None), MOVING)) == []


def test_a_frozen_parameter_has_no_business_moving() -> None:
    frozen = facts(parameters=(parameter("base.weight", trainable=False), parameter("head.weight")))
    assert found(steps(40, STILL, MOVING), facts=frozen) == []


@pytest.mark.parametrize(
    "more",
    [{"stepped": False}, {"skipped": True}, {"rates": (0.0,)}, {"first_bad": ("gradient", "head")}],
    ids=["accumulation", "scaler", "rate zero", "non-finite"],
)
def test_steps_that_update_nothing_move_nothing(more: dict[str, Any]) -> None:
    assert found(steps(40, STILL, STILL, **more)) == []


def test_a_parameter_that_no_optimizer_holds_is_told_since_the_first_update() -> None:
    (event,) = found([record(0, stepped=False), *steps(40, STILL, MOVING, 1)])
    assert (event.symptom, event.layer_name, event.step) == ("stuck_parameter", "base", 1)
    assert event.metadata == {"parameters": ("base.weight",), "share": 0.5, "owned": False, "dtype": "float32"}


def test_a_parameter_that_its_optimizer_does_not_move_is_told_as_owned() -> None:
    owned = facts(parameters=(parameter("base.weight"), parameter("head.weight")))
    (event,) = found(steps(40, STILL, MOVING), facts=owned)
    assert event.metadata["owned"] is True


# all of them stop


def test_four_steps_without_any_move_are_a_pause() -> None:
    assert found([*steps(9, MOVING, MOVING), *steps(4, STILL, STILL, 9), *steps(9, MOVING, MOVING, 13)]) == []


def test_updates_that_stop_while_gradients_go_on_are_told_once() -> None:
    (event,) = found([*steps(9, MOVING, MOVING), *steps(40, STILL, STILL, 9)])
    assert (event.symptom, event.layer_name, event.step) == ("updates_stop", None, 9)
    assert event.metadata == {"since": 9, "moved_before": True}


def test_updates_that_never_began_say_so() -> None:
    (event,) = found(steps(40, STILL, STILL))
    assert (event.symptom, event.step, event.metadata["moved_before"]) == ("updates_stop", 0, False)


def test_a_loop_without_an_optimizer_may_update_only_now_and_then() -> None:
    by_hand = RunFacts(parameters=NET.parameters, manual_optimizer=True)
    rare = [one for k in range(5) for one in steps(1, MOVING, MOVING, 10 * k) + steps(9, STILL, STILL, 10 * k + 1)]
    assert found([StepRecord(r.step, stepped=False, parameters=r.parameters) for r in rare], facts=by_hand) == []
    (event,) = found(steps(40, STILL, STILL, stepped=False), facts=by_hand)
    assert event.symptom == "updates_stop"


# nothing can train


def frozen(**more: Any) -> RunFacts:
    return facts(parameters=(parameter("a.weight", 0, trainable=False), parameter("b.weight", **more)))


def test_one_trainable_parameter_in_an_optimizer_is_enough() -> None:
    assert found([record(k) for k in range(9)], facts=frozen()) == []


def test_a_model_without_an_optimizer_is_no_model_that_cannot_train() -> None:
    none = facts(parameters=(parameter("a.weight", None, trainable=False),))
    assert found([record(k) for k in range(9)], facts=none) == []


def test_two_steps_may_come_before_the_thaw() -> None:
    assert found([record(k) for k in range(2)], facts=frozen(trainable=False)) == []


@pytest.mark.parametrize("every", [1, 10])
def test_an_optimizer_that_holds_only_frozen_parameters_is_told_since_the_first_step(every: int) -> None:
    (event,) = found([record(k * every) for k in range(9)], facts=frozen(owner=None))
    assert (event.symptom, event.layer_name, event.step) == ("nothing_trains", "a", 0)
    assert event.metadata == {"owned": 1, "owned_trainable": 0, "frozen": 1}


def test_eight_steps_are_enough_and_five_for_all_and_three_for_none_to_train() -> None:
    assert len(found(steps(8, STILL, MOVING))) == 1
    assert len(found(steps(5, STILL, STILL))) == 1
    assert len(found([record(k) for k in range(3)], facts=frozen(trainable=False))) == 1


@pytest.mark.parametrize(("gradient", "told"), [(0.9e-4, 0), (1.1e-4, 1)])
def test_a_thousandth_of_the_usual_gradient_is_what_an_update_may_lose(gradient: float, told: int) -> None:
    three = facts(parameters=(*NET.parameters, parameter("tail.weight")))
    given = {
        "base.weight": parameter_stats(gradient, moved=False),
        "head.weight": MOVING,
        "tail.weight": MOVING,
    }
    assert len(found([record(k, parameters=given) for k in range(40)], facts=three)) == told


@pytest.mark.parametrize(("count", "told"), [(15, 0), (16, 1)])
def test_a_loop_without_an_optimizer_rests_for_fifteen_steps_at_most(count: int, told: int) -> None:
    by_hand = RunFacts(parameters=NET.parameters, manual_optimizer=True)
    assert len(found(steps(count, STILL, STILL, stepped=False), facts=by_hand)) == told


@pytest.mark.parametrize(
    ("kind", "rate", "dtype", "told"),
    [
        ("SGD", 1e-6, "float32", 0),
        ("SGD", 1e-5, "float32", 1),
        ("SGD", 1e-6, "float16", 1),
        ("SGD", 1e-6, "float64", 1),
        ("Adam", 1e-6, "float32", 1),
    ],
)
def test_a_plain_step_below_the_weights_rounding_moves_nothing_and_nothing_is_stuck(
    kind: str, rate: float, dtype: str, told: int
) -> None:
    """The gradient is 0.1 and the weight 1: at a rate of 1e-6 the step is lost in float32, not in float64."""
    net = facts(
        parameters=(parameter("base.weight", dtype=dtype), parameter("head.weight", dtype=dtype)),
        optimizers=(optimizer(kind),),
    )
    assert len(found(steps(40, STILL, MOVING, rates=(rate,)), facts=net)) == told


# one that moved before

OWNED = facts(
    *NET.modules,
    parameters=(parameter("base.weight"), parameter("head.weight"), parameter("gen.weight", 1)),
    optimizers=(optimizer("Adam"), optimizer("Adam")),
)


def rest(count: int, rates: tuple[float, ...] = (0.1, 0.1)) -> list[StepRecord]:
    return [*steps(9, MOVING, MOVING, rates=(0.1, 0.1)), *steps(count, STILL, MOVING, 9, rates=rates)]


def test_a_parameter_that_moved_may_rest_for_fifteen_steps() -> None:
    assert found(rest(15), facts=OWNED) == []


def test_a_group_whose_rate_is_zero_rests_on_purpose() -> None:
    assert found(rest(60, rates=(0.1, 0.0)), facts=OWNED) == []


def test_steps_too_small_to_change_the_last_digit_leave_it_where_it_is() -> None:
    assert found(rest(60, rates=(1e-8, 1e-8)), facts=OWNED) == []


def test_a_scale_that_is_clamped_at_its_limit_stays_there() -> None:
    scale = facts(
        *NET.modules,
        parameters=(parameter("base.weight", numel=1, dims=0), *OWNED.parameters[1:]),
        optimizers=OWNED.optimizers,
    )
    assert found(rest(60), facts=scale) == []


def test_a_player_alone_in_its_optimizer_may_wait_for_the_other() -> None:
    players = facts(
        *NET.modules,
        parameters=(parameter("base.weight", 1), parameter("head.weight", 0)),
        optimizers=OWNED.optimizers,
    )
    assert found(rest(60), facts=players) == []


def test_a_replaced_layer_whose_optimizer_moves_the_old_one_is_told_since_then() -> None:
    (event,) = found(rest(16), facts=OWNED)
    assert (event.symptom, event.layer_name, event.step) == ("stuck_parameter", "base", 9)
