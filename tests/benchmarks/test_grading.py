"""Grading of diagnoses against labels, checked against values worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.accuracy import recalibrated
from benchmarks.accuracy_page import picture, written
from benchmarks.corpus import VERSION
from benchmarks.grading import Answer, Row, Share, as_json, calibration_error, scores
from neuraldbg.reasoning.calibration import Calibration

RIGHT = Answer("schedule_jump", "optimizer_instability", None, 42, 0.9)
FAULTY = Row(
    "mlp/jump.0:0",
    "test",
    "jump",
    ("schedule_jump",),
    ("optimizer_instability",),
    (),
    (40, 44),
    "failed",
    (RIGHT,),
)
HEALTHY = Row("mlp/plain.0:0", "test", "plain", (), (), (), None, "healthy", ())


def test_a_right_answer_has_nothing_wrong() -> None:
    assert FAULTY.wrong == []


def test_a_hypothesis_without_the_verdict_failed_is_a_miss() -> None:
    assert replace(FAULTY, verdict="warning").wrong == ["missed"]


def test_a_warning_on_a_healthy_run_is_no_alarm() -> None:
    assert replace(HEALTHY, verdict="warning").wrong == []


def test_a_hypothesis_on_a_healthy_run_is_an_alarm() -> None:
    assert replace(HEALTHY, verdict="warning", answers=(RIGHT,)).wrong == ["false_alarm"]


def test_an_onset_may_miss_its_window_by_two_steps_and_no_more() -> None:
    near, far = replace(RIGHT, step=46), replace(RIGHT, step=47)
    assert replace(FAULTY, answers=(near,)).wrong == []
    assert replace(FAULTY, answers=(far,)).wrong == ["onset"]


def test_a_second_hypothesis_counts_among_three_only() -> None:
    row = replace(FAULTY, answers=(replace(RIGHT, cause="unknown"), RIGHT))
    assert (row.cause(), row.cause(3)) == (False, True)


def test_the_interval_of_no_alarm_in_300_ends_at_1_2_percent() -> None:
    low, high = Share(0, 300).interval
    assert low == 0 and high == pytest.approx(0.01222, abs=2e-5)


def test_the_interval_of_5_in_20_is_that_of_the_tables() -> None:
    assert Share(5, 20).interval == pytest.approx((0.0866, 0.4910), abs=1e-4)


def test_calibration_error_is_the_mean_gap_between_said_and_right() -> None:
    wrong = replace(FAULTY, answers=(replace(RIGHT, cause="unknown", confidence=0.3),))
    assert calibration_error([FAULTY, wrong]) == pytest.approx((0.1 + 0.3) / 2)


def test_figures_count_a_missed_failure_as_wrong() -> None:
    found = scores([FAULTY, replace(FAULTY, verdict="healthy", answers=()), HEALTHY])
    assert (found["detection"], found["cause, first"], found["false alarms"]) == (Share(1, 2), Share(1, 2), Share(0, 1))


def test_the_page_names_each_false_alarm() -> None:
    page = written([FAULTY, replace(HEALTHY, verdict="failed", answers=(RIGHT,))], 1)
    assert "| mlp/plain.0:0 | schedule_jump | 0.90 |" in page


def test_the_picture_is_drawn_without_any_run() -> None:
    assert picture([]).startswith("<svg")


def test_kept_rows_come_back_with_todays_confidences_which_never_rise_down_the_list() -> None:
    second = replace(RIGHT, cause="label_error", score=5.0)
    row = replace(FAULTY, answers=(replace(RIGHT, score=0.0), second))
    kept = json.loads(json.dumps({"version": VERSION, "rows": [as_json(row)]}))
    (read,) = recalibrated(kept, Calibration(causes={"schedule_jump": (1.0, 1.0), "label_error": (1.0, 0.0)}))
    assert [a.confidence for a in read.answers] == [pytest.approx(0.7311), pytest.approx(0.7311)]
    assert replace(read, answers=row.answers) == row


def test_rows_of_another_corpus_are_refused_by_its_version() -> None:
    with pytest.raises(SystemExit, match="corpus version 0, this is"):
        recalibrated({"version": 0, "rows": []}, Calibration())
