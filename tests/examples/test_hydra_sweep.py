"""The Hydra example: a multirun whose jobs are watched, compared by their overrides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from neuraldbg.cli import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "hydra_sweep.py"


def test_each_job_of_a_multirun_leaves_its_diagnosis_with_its_overrides(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--multirun", "rate=0.05,1e6", "width=8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(CliRunner().invoke(app, ["compare", str(tmp_path / "multirun"), "--json"]).stdout)
    rows = {row["parameters"]["rate"]: (row["verdict"], row["cause"]) for row in said["rows"]}
    assert rows == {0.05: ("healthy", None), 1e6: ("failed", "learning_rate_too_high")}
    assert {row["parameters"]["width"] for row in said["rows"]} == {8.0}
