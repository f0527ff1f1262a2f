"""The example sweep, cut short: what it prints is what `neuraldbg compare` reads from its folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_short_sweep_names_causes_of_real_trainings(tmp_path: Path) -> None:
    example = [sys.executable, str(ROOT / "examples" / "cause_sweep.py"), "--trainings", "8"]
    printed = subprocess.run(example, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True).stdout
    compared = [sys.executable, "-m", "neuraldbg", "compare", "cause-sweep", "--json"]
    told = json.loads(subprocess.run(compared, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert sum(told["verdicts"].values()) == 8 and {"lr", "depth", "activation"} <= set(told["parameters"])
    assert "8 trainings:" in printed and all(cause["cause"] in printed for cause in told["causes"])
    assert "learning_rate_too_high" in {cause["cause"] for cause in told["causes"]}
    assert (tmp_path / "cause-sweep" / "sweep.html").stat().st_size > 5000
