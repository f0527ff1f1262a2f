"""A comparison: counts by hand, honest silence with few trainings, and the causes of a sweep found again."""

from __future__ import annotations

import random

import pytest

import neuraldbg
from neuraldbg.sweep.compare import compare
from neuraldbg.sweep.rows import Row


def healthy(k, **parameters):
    return Row(f"h{k}", "healthy", parameters=parameters)


def failed(k, cause="learning_rate_too_high", verdict="failed", **parameters):
    return Row(f"f{k}", verdict, cause, "fc1", 10 * k, 0.5 + 0.01 * k, parameters)


def test_no_trainings_are_no_causes():
    found = compare([])
    assert (found.rows, found.causes, found.overall) == ((), (), None)


def test_runs_without_a_diagnosis_are_counted_and_left_out():
    found = compare([Row("a"), Row("b", "running"), healthy(1, lr=0.1)])
    assert (found.undiagnosed, len(found.rows), found.verdicts["healthy"]) == (2, 1, 1)


def test_a_cause_that_all_have_goes_with_nothing():
    found = compare([failed(k, lr=0.1 * k) for k in range(6)])
    assert found.causes[0].said == "all trainings have it" and found.causes[0].splits == ()


def test_few_trainings_are_too_few_to_say():
    found = compare([failed(1, lr=1.0), failed(2, lr=1.0), healthy(1, lr=0.1), healthy(2, lr=0.1), healthy(3, lr=0.1)])
    assert found.causes[0].said == "too few runs to say: 2 with it, 3 without"


def test_what_is_as_good_by_chance_is_not_told_as_found():
    draw = random.Random(1)
    found = compare([failed(k, lr=draw.random()) if k % 3 == 0 else healthy(k, lr=draw.random()) for k in range(30)])
    assert found.causes[0].splits == ()
    assert found.causes[0].said.startswith("no hyper-parameter separates it; the nearest, lr")


def test_the_same_settings_everywhere_are_said():
    found = compare([failed(k, lr=0.1) if k < 4 else healthy(k, lr=0.1) for k in range(8)])
    assert found.causes[0].said == "no hyper-parameter differs between the trainings"
    assert found.left_out == {"lr": "the same in all"}


def sweep():
    draw = random.Random(0)
    out = []
    for k in range(60):
        lr, activation = 10 ** draw.uniform(-4, 0), draw.choice(["relu", "tanh", "sigmoid"])
        given = {"lr": lr, "activation": activation, "seed": float(k), "out": f"runs/{k}"}
        if activation == "sigmoid":
            out.append(failed(k, "saturating_activations_deep", **given))
        elif lr > 0.1:
            out.append(failed(k, verdict="warning" if k % 5 == 0 else "failed", **given))
        else:
            out.append(healthy(k, **given))
    return out


def test_a_sweeps_causes_are_counted_and_each_is_separated_by_its_hyper_parameter():
    rows = sweep()
    found = compare(rows)
    by_cause = {c.cause: c for c in found.causes}
    rate, deep = by_cause["learning_rate_too_high"], by_cause["saturating_activations_deep"]
    assert found.verdicts["failed"] == sum(r.verdict == "failed" for r in rows) == rate.failed + deep.failed
    assert rate.warned == found.verdicts["warning"] == 4
    assert [c.failed + c.warned for c in found.causes] == sorted((deep.failed, rate.failed + 4), reverse=True)
    assert str(deep.splits[0].condition) == "activation is sigmoid" and deep.splits[0].outside_with == 0
    condition = rate.splits[0].condition
    assert (condition.parameter, condition.sign) == ("lr", ">") and 0.05 < condition.value < 0.12
    assert found.left_out == {"out": "60 different texts"} and "seed" in found.parameters
    assert all(s.condition.parameter != "seed" for c in found.causes for s in c.splits)


def test_onset_places_and_the_surest_trainings_are_told():
    (cause,) = compare([failed(k, lr=1.0) for k in range(1, 8)]).causes
    assert cause.steps == (10, 40.0, 70) and cause.layers == (("fc1", 7),)
    assert [row.name for row in cause.examples] == ["f7", "f6", "f5", "f4", "f3"]


def test_it_is_a_public_name():
    assert neuraldbg.compare is compare and "compare" in neuraldbg.__all__


def test_several_sources_are_one_comparison(tmp_path):
    assert len(compare([healthy(1)], [healthy(2), failed(3)]).rows) == 3
    with pytest.raises(LookupError, match="no file or folder"):
        compare([healthy(1)], tmp_path / "gone")
