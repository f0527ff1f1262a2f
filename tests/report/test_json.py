import dataclasses
import json
import math

import pytest

from neuraldbg.diagnosis import SCHEMA_VERSION, Diagnosis, Verdict
from neuraldbg.report.json import from_dict, from_json, to_dict, to_json


def without_margin(diagnosis):
    """Take the one NaN out of the first hypothesis."""
    assert diagnosis.top is not None and isinstance(diagnosis.top.metadata, dict)
    return diagnosis.top.metadata.pop("margin")


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("name", ["failed", "healthy", "warning", "hostile"])
def test_a_diagnosis_loads_back_as_an_equal_value(name, request):
    diagnosis = request.getfixturevalue(name)
    again = from_json(to_json(diagnosis))
    if name in ("failed", "hostile"):  # NaN is the one value that is not equal to itself
        assert math.isnan(without_margin(again))
        without_margin(diagnosis)
    assert again == diagnosis
    assert type(again.verdict) is Verdict and type(again.facts.structure) is frozenset
    assert str(again) == str(diagnosis)


def test_an_empty_diagnosis_loads_back():
    diagnosis = Diagnosis(Verdict.RUNNING, 0.0)
    assert from_json(to_json(diagnosis)) == diagnosis


def test_two_diagnoses_that_differ_in_one_event_stay_different(failed):
    other = dataclasses.replace(failed, events=failed.events[:-1])
    assert from_json(to_json(other)) != failed


def test_the_text_holds_finite_numbers_only_and_its_schema_comes_first(failed):
    text = to_json(failed)
    data = json.loads(text, parse_constant=refuse)
    assert next(iter(data)) == "schema_version" and data["schema_version"] == SCHEMA_VERSION
    assert math.isinf(failed.events[2].metadata["rms"])  # so that there was something to encode
    assert text.isascii()


def test_a_newer_schema_is_refused_with_what_to_type(failed):
    data = {**to_dict(failed), "schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(
        ValueError, match=rf"schema_version {SCHEMA_VERSION + 1}.*reads up to {SCHEMA_VERSION}.*pip install"
    ):
        from_dict(data)


def test_fields_of_another_version_are_left_out_and_missing_ones_take_their_default(failed):
    data = to_dict(failed)
    data["colour"] = "red"
    data["facts"]["planet"] = "earth"
    del data["couplings"]
    assert from_dict(data).couplings == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is no JSON"),
        ("[]", "no NeuralDBG diagnosis"),
        ("{}", "no NeuralDBG diagnosis"),
        ('{"schema_version": true}', "no NeuralDBG diagnosis"),
        ('{"schema_version": 1}', "damaged"),
        ('{"schema_version": 1, "verdict": "odd", "failure_probability": 0.0}', "damaged.*odd"),
        ('{"schema_version": 1, "verdict": "failed", "failure_probability": 0.0, "events": [3]}', "damaged"),
    ],
)
def test_what_is_no_diagnosis_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=said):
        from_json(text)
