"""The command that fits the confidences, on samples and on rows that the accuracy benchmark wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import calibrate
from benchmarks.calibrate import Sample
from benchmarks.grading import Answer, Row, as_json
from neuraldbg.reasoning.calibration import parse

ROOT = Path(__file__).parents[2]
ANSWER = Answer("schedule_jump", "optimizer_instability", None, 42, 0.9, 3.4)
ROW = Row("mlp/jump.0:1", "fit", "jump", ("schedule_jump",), (), (), None, "failed", (ANSWER,))


def test_only_first_hypotheses_of_the_fit_split_are_samples() -> None:
    second = replace(ANSWER, cause="label_error", score=1.0)
    rows = [
        replace(ROW, split="test"),
        replace(ROW, verdict="warning", answers=()),
        replace(ROW, answers=(ANSWER, second)),
        replace(ROW, causes=("label_error",)),
        replace(ROW, causes=()),
    ]
    assert calibrate.samples_of(map(as_json, rows)) == [
        Sample("mlp", "schedule_jump", 3.4, right) for right in (True, False, False)
    ]


def test_unknown_is_no_sample_for_its_label_is_an_exact_fact() -> None:
    unknown = replace(ROW, causes=("unknown",), answers=(replace(ANSWER, cause="unknown"),))
    assert calibrate.samples_of([as_json(unknown)]) == []


def test_hypotheses_behind_the_first_are_right_where_there_was_a_second_fault() -> None:
    both = replace(ROW, causes=("schedule_jump", "label_error"))
    second, explained = replace(ANSWER, cause="label_error", score=1.0), replace(ANSWER, cause="x", score=-2.0)
    rows = [as_json(replace(r, answers=(ANSWER, second, explained))) for r in (both, ROW, ROW)]
    assert calibrate.later_of(rows) == pytest.approx(2 / 5)


def test_without_samples_the_curve_is_the_prior() -> None:
    assert calibrate.fit([]) == (*calibrate.PRIOR, {})


def test_a_cause_that_is_often_wrong_becomes_less_sure() -> None:
    good = [Sample(f"g{i}", "good", 3.0, True) for i in range(10)]
    bad = [Sample(f"b{i}", "bad", 3.0, False) for i in range(10)]
    fitted = calibrate.fit([*good, *bad])
    assert calibrate.confidence(fitted, good[0]) > 0.65
    assert calibrate.confidence(fitted, bad[0]) < 0.35


def test_one_sample_hardly_moves_a_cause() -> None:
    alone = Sample("x", "rare", 3.0, False)
    assert abs(calibrate.fit([alone])[2]["rare"]) < 0.3


def test_scores_that_mislead_never_turn_the_curve_round() -> None:
    samples = [Sample(f"s{i}", "x", float(i), i < 20) for i in range(40)]
    assert calibrate.fit(samples)[0] == pytest.approx(calibrate.FLATTEST, abs=1e-6)


def test_of_a_program_that_is_left_out_only_the_others_speak() -> None:
    """A cause that is right in one program and wrong in the other: each fit expects the opposite."""
    samples = [Sample(program, "x", 3.0, program == "a") for program in "ab" for _ in range(10)]
    whole = calibrate.fit(samples)
    inside = calibrate.quality([calibrate.confidence(whole, s) for s in samples], samples)
    assert inside == pytest.approx((0.25, 0.0), abs=0.1)
    assert calibrate.left_out(samples)[0] > 0.4


def test_what_is_written_is_what_the_package_reads() -> None:
    samples = [Sample(f"s{i}", "x", i / 5, i > 10) for i in range(20)]
    read = parse(json.loads(json.dumps(calibrate.as_data(samples, 0.4, 7, ["x", "y"]))))
    assert read.knows("y")
    assert read.later == 0.4
    assert read.confidence("x", 100.0) == read.surest == 0.85
    assert read.causes["unknown"] == calibrate.PRIOR
    assert "20 first hypotheses of 20 programs" in read.source
    assert "corpus version 7" in read.source
    assert abs(read.confidence("x", 2.0) - calibrate.confidence(calibrate.fit(samples), samples[10])) < 1e-3


def told(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.calibrate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_rows_that_were_kept_are_fitted_without_a_training(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.json", tmp_path / "calibration.json"
    rows.write_text(json.dumps({"version": 3, "rows": [as_json(ROW)] * 4}))
    done = told("--rows", str(rows), "--out", str(out), "--check")
    assert done.stdout.startswith("4 first hypotheses, 4 right.")
    assert not out.exists()
    assert told("--rows", str(rows), "--out", str(out)).returncode == 0
    assert parse(json.loads(out.read_text())).knows("schedule_jump")


def test_rows_without_a_hypothesis_are_refused_by_name(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps({"version": 3, "rows": [as_json(replace(ROW, split="test"))]}))
    done = told("--rows", str(rows))
    assert done.returncode == 1
    assert f"no run of the fit split in {rows} gave a hypothesis" in done.stderr
