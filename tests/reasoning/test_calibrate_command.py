"""The command that fits the confidences, on samples and on a labelled training of its own."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from neuraldbg.reasoning.calibration import parse

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "calibrate.py"


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module
    spec.loader.exec_module(module)
    return module


def test_without_samples_the_curve_is_the_prior(calibrate: ModuleType) -> None:
    assert calibrate.fit([]) == (*calibrate.PRIOR, {})


def test_a_cause_that_is_often_wrong_becomes_less_sure(calibrate: ModuleType) -> None:
    good = [calibrate.Sample(f"g{i}", "good", 3.0, True) for i in range(10)]
    bad = [calibrate.Sample(f"b{i}", "bad", 3.0, False) for i in range(10)]
    fitted = calibrate.fit([*good, *bad])
    assert calibrate.confidence(fitted, good[0]) > 0.65
    assert calibrate.confidence(fitted, bad[0]) < 0.35


def test_one_sample_hardly_moves_a_cause(calibrate: ModuleType) -> None:
    alone = calibrate.Sample("x", "rare", 3.0, False)
    assert abs(calibrate.fit([alone])[2]["rare"]) < 0.3


def test_scores_that_mislead_never_turn_the_curve_round(calibrate: ModuleType) -> None:
    samples = [calibrate.Sample(f"s{i}", "x", float(i), i < 20) for i in range(40)]
    assert calibrate.fit(samples)[0] == pytest.approx(calibrate.FLATTEST, abs=1e-6)


def test_what_is_written_is_what_the_package_reads(calibrate: ModuleType) -> None:
    samples = [calibrate.Sample(f"s{i}", "x", i / 5, i > 10) for i in range(20)]
    read = parse(json.loads(json.dumps(calibrate.as_data(samples, 20, ["x", "y"]))))
    assert read.knows("y")
    assert "20 hypotheses of 20 runs" in read.source
    assert abs(read.confidence("x", 2.0) - calibrate.confidence(calibrate.fit(samples), samples[10])) < 1e-3


CASE = """'Fails.'
STEP = 3
LABEL = dict(cause="x", onset=(STEP, STEP))
def truth(seed): ...
def build(seed): ...
"""


def test_the_label_and_the_proof_are_out_of_sight(calibrate: ModuleType) -> None:
    assert ast.unparse(calibrate.stripped(CASE)).split() == ["STEP", "=", "3", "def", "build(seed):", "..."]
    assert calibrate.label_of(CASE) == "x"


def test_a_folder_without_cases_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"no labelled case (a file with LABEL) in: {tmp_path}" in done.stderr
