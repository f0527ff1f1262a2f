from __future__ import annotations

from functools import partial

from neuraldbg.detectors import nonfinite_input
from neuraldbg.record import Culprit
from neuraldbg.testing import facts, feed, input_stats, module, record

found = partial(feed, nonfinite_input, facts=facts(module("fc2", 1), module("fc1", 0)))


def test_large_values_are_values() -> None:
    assert found([record(k, inputs=(input_stats(far=3e38),)) for k in range(30)]) == []


def test_nan_is_told_with_its_count_features_rows_and_the_first_module() -> None:
    bad = input_stats(name="ids", nans=5, bad_features=(1, 2), bad_rows=(0,))
    (event,) = found([record(0, inputs=(input_stats(),)), record(1, inputs=(input_stats(), bad))])
    assert (event.symptom, event.layer_name, event.step) == ("nan_input", None, 1)
    assert event.metadata == {
        "input": "ids",
        "count": 5,
        "features": (1, 2),
        "rows": (0,),
        "batch": 32,
        "enters": "fc1",
    }


def test_a_batch_may_hold_both_kinds() -> None:
    both = found([record(0, inputs=(input_stats(nans=1, infs=2),))])
    assert [(e.symptom, e.metadata["count"]) for e in both] == [("nan_input", 1), ("inf_input", 2)]


def test_a_model_whose_order_is_not_known_yet_has_no_first_module() -> None:
    (event,) = found([record(0, inputs=(input_stats(infs=1),))], facts=facts(module("fc1", None)))
    assert event.metadata["enters"] is None


def test_at_most_twenty_of_each_kind_are_told_and_eight_features() -> None:
    events = found([record(k, inputs=(input_stats(nans=1, infs=1, bad_features=tuple(range(50))),)) for k in range(60)])
    assert [e.symptom for e in events].count("nan_input") == [e.symptom for e in events].count("inf_input") == 20
    assert events[0].metadata["features"] == tuple(range(8))


def test_a_batch_that_only_the_replay_saw_is_told_once() -> None:
    seen = record(3, sampled=False, culprit=Culprit("fc1", None, phase="input", detail="inf"))
    (event,) = found([seen])
    assert (event.symptom, event.step, event.metadata["enters"]) == ("inf_input", 3, "fc1")
    assert found([record(3, inputs=(input_stats(infs=2),), culprit=seen.culprit)])[0].metadata["count"] == 2


def test_an_operator_is_no_input() -> None:
    assert found([record(3, culprit=Culprit("fc1", "log", phase="forward", detail="zero_argument"))]) == []
