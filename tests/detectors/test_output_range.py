from __future__ import annotations

import math
from typing import Any

import pytest

from neuraldbg.detectors import output_range
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, loss_stats, module, record


def steps(low: float | None, high: float | None, count: int = 3, kind: str = "mse", **more: Any) -> list[StepRecord]:
    stats = loss_stats(kind, target_low=low, target_high=high)
    return [record(k, layers={"out": layer_stats(**more)}, loss_stats=stats, window=5) for k in range(count)]


def found(activation: str, records: list[StepRecord], position: str = "output") -> list[Any]:
    return feed(output_range, records, facts=facts(module("out", 1, activation, position=position)))


@pytest.mark.parametrize(
    ("activation", "low", "high"),
    [("relu", 0.0, 1e9), ("relu", -0.1, 1.0), ("sigmoid", 0.0, 1.0), ("sigmoid", -0.05, 1.05), ("tanh", -1.0, 1.0)],
)
def test_targets_within_reach_or_nearly_are_reached(activation: str, low: float, high: float) -> None:
    assert found(activation, steps(low, high)) == []


def test_targets_that_are_not_known_are_not_judged() -> None:
    assert found("relu", steps(None, None)) == []
    assert found("relu", [record(0, layers={"out": layer_stats()})]) == []


def test_class_numbers_are_no_values_to_reach() -> None:
    assert found("sigmoid", steps(0.0, 9.0, kind="nll")) == []


def test_a_hidden_activation_has_no_targets() -> None:
    assert found("relu", steps(-3.0, 3.0, dead=0.9), position="hidden") == []


def test_an_unbounded_output_reaches_everything() -> None:
    assert found("leaky", steps(-3.0, 3.0)) == []


@pytest.mark.parametrize(
    ("activation", "covered", "low"), [("relu", 0.5, 0.0), ("sigmoid", 1 / 6, 0.0), ("tanh", 1 / 3, -1.0)]
)
def test_targets_out_of_reach_are_told_once(activation: str, covered: float, low: float) -> None:
    (event,) = found(activation, steps(-3.0, 3.0))
    assert (event.symptom, event.layer_name, event.step) == ("output_range", "out", 0)
    assert event.metadata["covered"] == pytest.approx(covered) and event.metadata["low"] == low
    assert (event.metadata["target_low"], event.metadata["target_high"]) == (-3.0, 3.0)
    assert event.metadata["dead"] is None


def test_one_target_value_is_in_reach_or_not() -> None:
    assert found("sigmoid", steps(1.0, 1.0)) == []
    (event,) = found("sigmoid", steps(2.0, 2.0))
    assert event.metadata["covered"] == 0.0


def test_a_tenth_of_the_output_units_may_be_dead() -> None:
    assert found("relu", steps(0.0, 1.0, dead=0.14)) == []


def test_output_units_that_are_dead_can_predict_nothing_and_are_dated_by_their_window() -> None:
    alive, dead = steps(0.0, 1.0, 8, dead=0.0), steps(0.0, 1.0, 12, dead=0.5)[8:]
    (event,) = found("relu", [*alive, *dead])
    assert (event.symptom, event.step, event.metadata["dead"]) == ("output_range", 4, 0.5)


def test_a_non_finite_step_is_left_out() -> None:
    assert found("relu", [record(0, layers={"out": layer_stats(dead=1.0)}, first_bad=("loss", None))]) == []


def test_just_beyond_the_limits_it_is_told() -> None:
    assert len(found("relu", steps(-0.15, 1.0))) == 1
    assert len(found("relu", steps(0.0, 1.0, dead=0.17))) == 1


def test_one_batch_with_an_outlier_tells_nothing_of_the_targets() -> None:
    usual, odd = steps(0.0, 1.0, 8), steps(-9.0, 9.0, 2)
    assert found("sigmoid", [*usual[:4], odd[0], *usual[5:7]]) == []


@pytest.mark.parametrize("kind", ["mse", "bce_with_logits", "nll"])
def test_an_output_that_is_scaled_up_behind_its_activation_is_not_confined(kind: str) -> None:
    """An actor's 2 * tanh, or ten times a cosine: the loss takes values that the module did not give."""
    stats = loss_stats(kind, chance=1.4, target_low=-2.0, target_high=2.0, output_low=-9.0, output_high=2.0)
    known = facts(module("out", 1, "tanh", position="output", width=4), models=("net",))
    layers = {"out": layer_stats(low=-0.99, high=0.99)}
    assert feed(output_range, [record(k, layers=layers, loss_stats=stats) for k in range(9)], facts=known) == []


def test_a_limit_that_no_output_comes_near_is_told_at_the_end_as_one_nothing_is_pushed_against() -> None:
    known = facts(module("out", 1, "tanh", position="output", width=10), models=("net",))
    stats = loss_stats("nll", chance=math.log(10))

    def reached(step: int, high: float) -> StepRecord:
        return record(step, layers={"out": layer_stats(low=-0.1, high=high)}, loss_stats=stats)

    (event,) = feed(output_range, [reached(k, 0.7) for k in range(9)], facts=known)
    assert event.step == 0 and event.metadata["pushed"] is False
    (event,) = feed(output_range, [reached(0, 0.1), reached(1, 0.7), reached(2, 0.9)], facts=known)
    assert event.step == 0 and event.metadata["floor"] > 0.2 and event.metadata.get("pushed") is None


def scores(kind: str, chance: float | None, count: int = 2) -> list[StepRecord]:
    stats = loss_stats(kind, chance=chance)
    return [record(k, layers={"out": layer_stats(low=0.0, high=1.0)}, loss_stats=stats) for k in range(count)]


@pytest.mark.parametrize(
    ("activation", "width", "models"),
    [
        ("relu", 10, ("net",)),  # a rectifier leaves scores free to grow
        ("tanh", 2, ("net",)),  # two classes from -1 to 1: log(1 + exp(-2)) is 0.18 of chance
        ("tanh", 10, ("gen", "disc")),  # the loss belongs to another model
        ("tanh", None, ("net",)),
    ],
)
def test_scores_that_can_come_near_the_floor_of_the_loss_are_fine(
    activation: str, width: int | None, models: tuple[str, ...]
) -> None:
    known = facts(module("out", 1, activation, position="output", width=width), models=models)
    assert feed(output_range, scores("nll", math.log(width or 2)), facts=known) == []


def test_a_second_output_may_be_what_the_loss_reads() -> None:
    both = facts(
        module("value", 0, position="output"), module("out", 1, "tanh", position="output", width=10), models=("net",)
    )
    assert feed(output_range, scores("nll", math.log(10)), facts=both) == []


def test_a_loss_without_a_known_chance_has_no_known_floor() -> None:
    known = facts(module("out", 1, "sigmoid", position="output", width=4), models=("net",))
    assert feed(output_range, scores("nll", None), facts=known) == []


@pytest.mark.parametrize(
    ("activation", "kind", "width", "floor"),
    [
        ("sigmoid", "nll", 4, math.log(1 + 3 / math.e) / math.log(4)),
        ("tanh", "nll", 10, math.log(1 + 9 * math.exp(-2)) / math.log(10)),
        ("relu", "bce_with_logits", 1, 0.5),
        ("sigmoid", "bce_with_logits", 1, 0.5 * (math.log1p(math.exp(-1)) + math.log(2)) / math.log(2)),
    ],
)
def test_confined_scores_keep_the_loss_above_a_floor_that_arithmetic_gives(
    activation: str, kind: str, width: int, floor: float
) -> None:
    known = facts(module("out", 1, activation, position="output", width=width), models=("net",))
    chance = math.log(width) if kind == "nll" else math.log(2)
    (event,) = feed(output_range, scores(kind, chance), facts=known)
    found = event.metadata
    assert (event.symptom, event.layer_name, event.step, found["covered"]) == ("output_range", "out", 0, None)
    assert found["floor"] == pytest.approx(floor)


def test_an_activation_that_is_a_function_is_judged_by_what_comes_behind_it() -> None:
    """Scores from -3 to 3 before a sigmoid are 0.05 to 0.95 behind it."""
    squashed = facts(module("out", 1, "sigmoid", functional=True, position="output", width=4), models=("net",))
    inside = {"chance": 1.0, "target_low": -3.0, "target_high": 3.0, "output_low": 0.05, "output_high": 0.95}
    (event,) = feed(output_range, steps_of("mse", inside), facts=squashed)
    assert event.step == 0 and event.metadata["covered"] == pytest.approx(1 / 6)
    assert feed(output_range, steps_of("mse", {**inside, "output_high": 1.9}), facts=squashed) == []
    (event,) = feed(output_range, steps_of("nll", {"chance": math.log(4)}), facts=squashed)
    assert event.metadata["floor"] > 0.5


def steps_of(kind: str, stats: dict[str, Any]) -> list[StepRecord]:
    return [record(k, layers={"out": layer_stats()}, loss_stats=loss_stats(kind, **stats)) for k in range(4)]
