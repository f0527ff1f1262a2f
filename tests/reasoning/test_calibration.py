"""A score becomes a confidence that means something, or says that it does not."""

from __future__ import annotations

import pytest

from neuraldbg.reasoning.calibration import UNCALIBRATED_CEILING, Calibration, load, parse


def test_a_cause_without_an_entry_stays_at_the_ceiling() -> None:
    assert Calibration().confidence("mine", 100.0) == UNCALIBRATED_CEILING


def test_a_cause_without_an_entry_is_low_when_its_score_is() -> None:
    assert Calibration().confidence("mine", -5.0) < 0.01


def test_a_known_cause_may_be_sure() -> None:
    assert Calibration(causes={"known": (1.0, 0.0)}).confidence("known", 5.0) > 0.99


@pytest.mark.parametrize("score", [-1e9, 0.0, 1e9])
def test_a_confidence_lies_between_nought_and_one(score: float) -> None:
    assert 0.0 <= load().confidence("unknown", score) <= 1.0


def test_a_higher_score_is_never_less_sure() -> None:
    for cause in load().causes:
        assert load().confidence(cause, 1.0) <= load().confidence(cause, 3.0)


def test_the_shipped_numbers_say_where_they_come_from() -> None:
    assert len(load().source) > 20


def test_a_file_without_a_source_is_refused() -> None:
    with pytest.raises(KeyError, match="source"):
        parse({"fallback": {"a": 1, "b": 0}, "causes": {}})
