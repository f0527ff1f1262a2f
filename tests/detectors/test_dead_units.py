from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import dead_units
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, parameter, record

NET = facts(module("fc1", 0), module("relu", 1, "relu"))
found = partial(feed, dead_units, facts=NET)


def shares(*dead: float | None, window: int | None = 5, first: int = 0, **pre: float) -> list[StepRecord]:
    return [
        record(first + k, layers={"fc1": layer_stats(**pre), "relu": layer_stats(dead=d)}, window=window)
        for k, d in enumerate(dead)
    ]


def test_a_third_of_the_units_may_be_dead() -> None:
    assert found(shares(*[0.3] * 60)) == []


def test_sparsity_is_not_death() -> None:
    """Without a full window the share is unknown, however sparse the outputs are."""
    assert found(shares(*[None] * 60)) == []


def test_one_window_of_dead_units_later_on_is_chance() -> None:
    assert found(shares(0.1, 0.1, *[0.6, 0.1] * 10)) == []


def test_activations_that_are_no_rectifiers_have_no_dead_units() -> None:
    assert found(shares(*[0.9] * 20), facts=facts(module("fc1", 0), module("relu", 1, "leaky"))) == []


def test_what_follows_a_non_finite_value_reads_as_dead_and_is_left_out() -> None:
    bad = [record(k, layers={"relu": layer_stats(dead=1.0)}, first_bad=("forward", "fc1")) for k in range(20)]
    assert found(bad) == []


def test_units_that_die_are_dated_by_the_window_in_which_they_were_last_alive() -> None:
    (event,) = found(shares(*[0.1] * 20, *[0.6] * 3, mean=-0.4))
    assert (event.symptom, event.layer_name, event.step) == ("dead_units", "relu", 16)
    assert event.metadata["share"] == 0.6 and event.metadata["at_start"] == 0.1
    assert event.metadata["rise"] == pytest.approx(0.5)
    assert (event.metadata["previous"], event.metadata["position"]) == ("fc1", "hidden")
    assert event.metadata["ratio"] == pytest.approx(-0.4)


def test_a_window_is_counted_in_sampled_steps() -> None:
    sparse = [record(10 * k, layers={"relu": layer_stats(dead=0.1 if k < 20 else 0.6)}, window=3) for k in range(22)]
    (event,) = found(sparse)
    assert event.step == 180


def test_units_dead_in_the_first_window_are_told_at_once() -> None:
    (event,) = found(shares(0.5, first=4))
    assert (event.step, event.metadata["at_start"], event.metadata["rise"]) == (4, 0.5, 0.0)


def test_death_is_told_again_only_when_a_fifth_more_of_the_units_died() -> None:
    assert [e.metadata["share"] for e in found(shares(*[0.1] * 5, *[0.4] * 9, *[0.59] * 9))] == [0.4]
    assert [e.metadata["share"] for e in found(shares(*[0.1] * 5, *[0.4] * 9, *[0.7] * 9))] == [0.4, 0.7]


def test_units_that_come_back_are_a_recovery_and_a_little_fewer_dead_are_none() -> None:
    assert not any(e.is_recovery for e in found(shares(*[0.1] * 5, *[0.6] * 5, *[0.2] * 20)))
    death, back = found(shares(*[0.1] * 5, *[0.6] * 5, *[0.1] * 20))
    assert back.is_recovery and (back.layer_name, back.step) == ("relu", 10) and back.from_state == death.to_state


def biased(mean: float, **more: Any) -> list[Any]:
    given = {"position": "hidden", **more}
    net = facts(
        module("fc1", 0),
        module("relu", 1, "relu", **given),
        parameters=(parameter("fc1.weight"), parameter("fc1.bias", dims=1, mean=mean)),
    )
    return found(shares(1.0, 1.0, 1.0, rms=5.0), facts=net)


def test_a_bias_that_the_signal_outweighs_does_not_decide() -> None:
    assert [e.symptom for e in biased(-3.9)] == ["dead_units"]


def test_a_bias_at_the_output_is_another_matter() -> None:
    assert [e.symptom for e in biased(-4.9, position="output")] == ["dead_units"]


def test_a_bias_that_silences_a_layer_comes_before_its_death() -> None:
    bias, death = biased(-4.9)
    assert (bias.symptom, bias.layer_name, death.symptom) == ("negative_bias", "fc1", "dead_units")
    assert bias.metadata["ratio"] == pytest.approx(-0.98) and bias.metadata["next"] == "relu"
    assert bias.step == death.step and bias.order < death.order


def test_a_layer_that_dies_a_second_time_did_not_start_dead() -> None:
    net = facts(
        module("fc1", 0),
        module("relu", 1, "relu"),
        parameters=(parameter("fc1.weight"), parameter("fc1.bias", dims=1, mean=-4.9)),
    )
    events = found(shares(*[1.0] * 3, *[0.1] * 20, *[1.0] * 3, rms=5.0), facts=net)
    assert [(e.symptom, e.is_recovery) for e in events] == [
        ("negative_bias", False),
        ("dead_units", False),
        ("dead_units", True),
        ("dead_units", False),
    ]


def test_a_silent_layer_has_no_ratio() -> None:
    (event,) = found(shares(1.0, rms=0.0))
    assert event.metadata["ratio"] is None


def test_a_layer_of_which_a_part_lives_is_not_silenced_by_its_bias() -> None:
    net = facts(*NET.modules, parameters=(parameter("fc1.weight"), parameter("fc1.bias", dims=1, mean=-4.9)))
    assert [e.symptom for e in found(shares(*[0.85] * 3, rms=5.0), facts=net)] == ["dead_units"]
