from __future__ import annotations

import math
from functools import partial

from neuraldbg.detectors import vanishing_group
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, module, parameter, record

GAN = facts(
    module("gen.fc", 0),
    module("disc.fc", 1),
    module("disc.out", 2, position="output"),
    parameters=(
        parameter("gen.fc.weight", 0),
        parameter("disc.fc.weight", 1),
        parameter("disc.out.weight", 1),
    ),
)
found = partial(feed, vanishing_group, facts=GAN)


def pairs(*values: tuple[float | None, ...]) -> list[StepRecord]:
    return [record(k, group_gradients=v) for k, v in enumerate(values)]


def falling(decades: float, count: int = 60) -> list[float]:
    return [10 ** (-decades * min(1.0, k / (count - 10))) for k in range(count)]


def test_two_players_that_keep_their_gradients_play() -> None:
    assert found(pairs(*[(1.0 + 0.5 * math.sin(k), 0.5) for k in range(80)])) == []


def test_a_gradient_that_falls_by_one_and_a_half_decades_converges() -> None:
    assert found(pairs(*[(g, 0.5) for g in falling(1.6)])) == []


def test_the_only_optimizer_has_no_opponent() -> None:
    assert found(pairs(*[(g,) for g in falling(5.0)])) == []


def test_the_gradient_of_the_layer_at_the_loss_may_die_by_fitting() -> None:
    assert found(pairs(*[(0.5, g) for g in falling(5.0)])) == []


def test_an_output_activation_belongs_to_the_layer_before_it() -> None:
    ends = facts(
        module("gen.fc", 0),
        module("disc.fc", 1),
        module("disc.act", 2, "sigmoid", position="output"),
        parameters=(parameter("gen.fc.weight", 0), parameter("disc.fc.weight", 1)),
    )
    assert found(pairs(*[(0.5, g) for g in falling(5.0)]), facts=ends) == []
    assert len(found(pairs(*[(g, 0.5) for g in falling(5.0)]), facts=ends)) == 1


def test_a_few_tiny_gradients_are_no_death() -> None:
    assert found(pairs(*[(1e-9 if k % 20 < 4 else 1.0, 0.5) for k in range(80)])) == []


def test_gradients_that_are_missing_or_not_finite_are_left_out() -> None:
    odd = [(math.nan, 0.5), (math.inf, 0.5), (None, None)]
    assert found(pairs(*(odd * 10), *[(1.0, 0.5)] * 30, *(odd * 5))) == []


def test_the_loser_of_two_is_told_once_since_its_gradient_left_the_first_decade() -> None:
    (event,) = found(pairs(*[(1.0, 0.5)] * 20, *[(g, 0.5) for g in falling(4.0)]))
    assert (event.symptom, event.layer_name) == ("vanishing_group", None)
    assert event.step == 33
    assert event.metadata["group"] == 0 and event.metadata["module"] == "gen.fc"
    assert event.metadata["decay_lg"] < -2.2 and event.metadata["others_lg"] == 0.0


def test_an_infinite_gradient_at_the_start_does_not_date_the_death_too_early() -> None:
    (event,) = found(pairs((math.inf, 0.5), *[(1.0, 0.5)] * 19, *[(g, 0.5) for g in falling(4.0)]))
    assert event.step == 33


def test_a_fall_just_beyond_the_limit_is_a_death_after_ten_steps_of_it() -> None:
    assert len(found(pairs(*[(1.0, 0.5)] * 20, *[(10**-2.3, 0.5)] * 10))) == 1
    assert found(pairs(*[(1.0, 0.5)] * 3, *[(10**-2.3, 0.5)] * 9)) == []
    assert len(found(pairs(*[(1.0, 0.5)] * 3, *[(10**-2.3, 0.5)] * 10))) == 1
