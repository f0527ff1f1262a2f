from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import saturation
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

NET = facts(module("fc1", 0), module("act", 1, "tanh"))
found = partial(feed, saturation, facts=NET)


def shares(*saturated: float | None, **more: Any) -> list[StepRecord]:
    return [
        record(k, layers={"act": layer_stats(saturated=s, derivative=0.05)}, **more) for k, s in enumerate(saturated)
    ]


def test_two_thirds_at_the_limits_leave_a_third_that_learns() -> None:
    assert found(shares(*[0.7] * 60)) == []


def test_one_saturated_step_now_and_then_is_its_batch() -> None:
    assert found(shares(*[0.9, 0.5] * 20)) == []


def test_unbounded_activations_have_no_limits() -> None:
    assert found(shares(*[0.9] * 9), facts=facts(module("fc1", 0), module("act", 1, "relu"))) == []


def test_what_was_not_measured_or_follows_a_bad_value_says_nothing() -> None:
    assert found(shares(*[None] * 9)) == []
    assert found(shares(*[1.0] * 9, first_bad=("forward", "act"))) == []


def test_an_activation_that_saturates_is_told_since_its_first_step() -> None:
    (event,) = found(shares(*[0.1] * 20, *[0.8] * 20))
    assert (event.symptom, event.layer_name, event.step) == ("saturation", "act", 20)
    assert event.metadata == {
        "share": 0.8,
        "derivative": 0.05,
        "function": "tanh",
        "position": "hidden",
        "start": 0.1,
        "at_start": False,
        "previous": "fc1",
    }


def test_an_activation_that_begins_saturated_says_so() -> None:
    (event,) = found(shares(*[0.9] * 5))
    assert (event.step, event.metadata["at_start"]) == (0, True)


def test_the_position_tells_an_output_that_may_saturate() -> None:
    (event,) = found(shares(*[0.9] * 5), facts=facts(module("act", 1, "sigmoid", position="output")))
    assert (event.metadata["position"], event.metadata["previous"]) == ("output", None)


def test_gates_of_a_recurrent_layer_count() -> None:
    (event,) = found(shares(*[0.9] * 5), facts=facts(module("act", 0, kind="LSTM", recurrent=True)))
    assert event.metadata["function"] == "LSTM"


@pytest.mark.parametrize(("low", "events"), [(0.45, 1), (0.35, 3)])
def test_a_layer_recovers_and_saturates_again_only_after_a_clear_fall(low: float, events: int) -> None:
    seen = found(shares(*[0.9] * 3, *[low] * 3, *[0.9] * 3))
    assert [e.is_recovery for e in seen] == [False, True, False][:events]
    assert [e.step for e in seen] == [0, 3, 6][:events]


def test_two_saturated_steps_are_enough() -> None:
    assert len(found(shares(0.71, 0.71))) == 1
