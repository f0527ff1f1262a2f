"""`neuraldbg demo` is `neuraldbg run` on a training that breaks: verdict, folder, exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from neuraldbg.runfolder import read


def test_the_demo_names_the_broken_sensor_and_its_step(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NEURALDBG")}
    done = subprocess.run(
        [sys.executable, "-m", "neuraldbg", "demo", "--dir", "out", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0 and done.stdout.count("loss") == 10
    told = json.loads(done.stderr)
    top = told["sessions"][0]["hypotheses"][0]
    assert (top["cause"], top["step"]) == ("nan_in_input", 120)
    assert read(tmp_path / "out" / "diagnosis.json").steps == 200
