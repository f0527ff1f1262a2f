from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import nonfinite
from neuraldbg.record import Culprit, StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, optimizer, parameter, parameter_stats, record

NET = facts(
    module("fc1", 0),
    module("log", 1, kind="Log", parameters=0),
    parameters=(parameter("fc1.weight"),),
    optimizers=(optimizer("Adam", eps=1e-8),),
)
found = partial(feed, nonfinite, facts=NET)
BAD = layer_stats(math.nan, low=math.nan, high=math.nan, finite=False, nan_share=0.25, inf_share=0.5, inputs_high=7.0)


def usual(*norms: float, high: float = 3.0, **more: Any) -> list[StepRecord]:
    return [
        record(k, gradient_norm=g, layers={"fc1": layer_stats(high / 3)}, loss=1.0, **more) for k, g in enumerate(norms)
    ]


def test_finite_steps_are_silent() -> None:
    assert found(usual(*[1.0] * 50)) == []


def test_a_place_in_the_input_is_told_by_another_detector() -> None:
    assert found([record(0, first_bad=("input", None))]) == []


def test_an_overflow_that_a_scaler_skips_is_no_failure() -> None:
    assert found(usual(*[1.0] * 5, math.inf, 1.0, skipped=True)) == []


def test_the_loss_is_told_once_whatever_the_first_place_was() -> None:
    (event,) = found([record(k, loss=math.nan, first_bad=("loss", None)) for k in range(5)])
    assert (event.symptom, event.layer_name, event.step, event.metadata["value"]) == ("loss_nonfinite", None, 0, "nan")


def test_only_the_first_place_is_told() -> None:
    bad = [record(5, first_bad=("forward", "log"), layers={"log": BAD}), record(6, first_bad=("weight", "fc1"))]
    (event,) = found([*usual(*[1.0] * 5), *bad])
    assert (event.symptom, event.layer_name, event.step) == ("nonfinite_activation", "log", 5)


def test_a_module_that_makes_nan_out_of_numbers_is_described() -> None:
    (event,) = found(
        [*usual(*[1.0] * 12), record(12, first_bad=("forward", "log"), layers={"fc1": layer_stats(), "log": BAD})]
    )
    assert {
        k: event.metadata[k] for k in ("inputs_finite", "nan_share", "inf_share", "largest", "kind", "weighted")
    } == {
        "inputs_finite": True,
        "nan_share": 0.25,
        "inf_share": 0.5,
        "largest": 7.0,
        "kind": "Log",
        "weighted": False,
    }
    assert event.metadata["growth_lg"] == event.metadata["activation_growth_lg"] == pytest.approx(0.0)
    assert event.metadata["dtype"] == "float32" and event.step_range is None


def test_growth_towards_the_bad_step_is_told_in_decades() -> None:
    steps = [record(k, gradient_norm=10.0 ** max(0, k - 9), layers={"fc1": layer_stats()}) for k in range(15)]
    (event,) = found([*steps, record(15, first_bad=("gradient", "fc1"))])
    assert event.metadata["growth_lg"] == pytest.approx(5.0)
    assert event.metadata["activation_growth_lg"] == pytest.approx(0.0)


def test_a_place_that_was_not_among_the_layers_leaves_its_numbers_open() -> None:
    (event,) = found([record(0, first_bad=("forward", "gone"))])
    assert event.metadata["inputs_finite"] is None and event.metadata["largest"] is None
    assert event.metadata["kind"] is None


def test_after_a_gap_the_step_is_a_range() -> None:
    (event,) = found([record(0, gradient_norm=1.0), record(10, first_bad=("forward", "fc1"), layers={"fc1": BAD})])
    assert (event.step, event.step_range) == (10, (1, 10))


def test_a_gradient_is_told_with_the_loss_that_it_came_from() -> None:
    (event,) = found([record(0, loss=1.0, first_bad=("gradient", "fc1"))])
    assert (event.symptom, event.layer_name) == ("nonfinite_gradient", "fc1")
    assert event.metadata["loss_finite"] and event.metadata["place_known"] and event.metadata["headroom_lg"] is None


def test_a_gradient_seen_by_its_norm_alone_has_no_place() -> None:
    (event,) = found([record(0, sampled=False, first_bad=("gradient", None))])
    assert event.layer_name is None and event.metadata["place_known"] is False


def test_headroom_is_the_scaled_gradient_over_what_the_type_can_hold() -> None:
    half = facts(module("fc1", 0), parameters=(parameter("fc1.weight", dtype="float16"),))
    step = record(0, gradient_norm=1.0, parameters={"fc1.weight": parameter_stats(1.0)}, loss_scale=65504.0)
    (event,) = found([step, record(1, first_bad=("gradient", "fc1"))], facts=half)
    assert event.metadata["dtype"] == "float16" and event.metadata["headroom_lg"] == pytest.approx(0.0)


def test_weights_that_turn_non_finite_by_the_step_come_from_the_update() -> None:
    (event,) = found([record(3, first_bad=("weight after", "fc1"))])
    assert (event.symptom, event.layer_name, event.step) == ("nonfinite_weight", "fc1", 3)
    assert event.metadata["gradient_finite"] is True and event.metadata["eps"] == 1e-8


def test_weights_that_were_non_finite_before_the_step_are_of_unknown_origin() -> None:
    (event,) = found([record(3, first_bad=("weight", None))])
    assert event.symptom == "nonfinite_weight" and event.metadata["gradient_finite"] is None


def test_what_the_replay_found_goes_with_the_event() -> None:
    culprit = Culprit("log", "aten.log", "net.py", 12, detail="outside_domain")
    unknown = layer_stats(math.nan, finite=False, inputs_finite=False)
    (event,) = found([record(0, first_bad=("forward", "log"), layers={"log": unknown}, culprit=culprit)])
    assert {k: event.metadata[k] for k in ("operator", "file", "line", "place", "detail", "inputs_finite")} == {
        "operator": "aten.log",
        "file": "net.py",
        "line": 12,
        "place": "model",
        "detail": "outside_domain",
        "inputs_finite": True,
    }


def test_an_operator_of_the_loss_goes_with_the_loss() -> None:
    bad = record(0, loss=math.inf, first_bad=("loss", None), culprit=Culprit(None, "aten.div", phase="loss"))
    (event,) = found([bad])
    assert (event.symptom, event.metadata["operator"], event.metadata["place"]) == (
        "loss_nonfinite",
        "aten.div",
        "loss",
    )


def test_without_a_replay_the_operator_is_unknown() -> None:
    (event,) = found([record(0, first_bad=("gradient", "fc1"))])
    assert event.metadata["operator"] is None


def test_the_first_ten_steps_are_what_growth_is_measured_from() -> None:
    steps = [record(k, gradient_norm=g) for k, g in enumerate([*[1.0] * 5, *[100.0] * 5, *[1e4] * 5])]
    (event,) = found([*steps, record(15, first_bad=("gradient", "fc1"))])
    assert event.metadata["growth_lg"] == pytest.approx(4 - math.log10(50.5))


MASKED = facts(module("scores", 0), module("squash", 1, "tanh"), module("head", 2))


def infinite(step: int, **more: Any) -> StepRecord:
    layers = {
        "scores": layer_stats(math.nan, finite=False, inf_share=0.1),
        "squash": layer_stats(inputs_finite=False),
        "head": layer_stats(),
    }
    return record(step, layers=layers, **more)


def test_infinities_that_a_mask_makes_at_every_step_are_not_to_blame_for_a_gradient() -> None:
    (event,) = found([infinite(0), infinite(1), infinite(2, first_bad=("gradient", "head"))], facts=MASKED)
    assert (event.symptom, event.layer_name) == ("nonfinite_gradient", "head")


def test_an_infinity_that_a_bounded_function_hides_is_the_first_place_not_the_gradient() -> None:
    culprit = Culprit("head", "addmm", phase="backward")
    bad = infinite(2, first_bad=("gradient", "head"), culprit=culprit)
    (event,) = found([*usual(1.0, 1.0), bad], facts=MASKED)
    assert (event.symptom, event.layer_name, event.step) == ("nonfinite_activation", "scores", 2)
    assert event.metadata["inputs_finite"] is True and event.metadata["operator"] is None
    assert event.metadata["inf_share"] == 0.1
