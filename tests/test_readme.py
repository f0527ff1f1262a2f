"""What the README shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from neuraldbg import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(code: str, folder: Path) -> str:
    """In a process to which no tracking server is known."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loop_names_the_broken_input_and_its_step(tmp_path: Path) -> None:
    (block,) = [code for code in BLOCKS if "NeuralDbg(model)" in code]
    out = run(block, tmp_path)
    assert out.startswith("FAILED: NaN values detected")
    assert "step 120" in out.splitlines()[0]


def test_the_mlflow_example_leaves_its_verdict_in_the_run(tmp_path: Path) -> None:
    """A machine that stands still for longer than closing waits (10 s) leaves the report on disk: once is forgiven."""
    (block,) = [code for code in BLOCKS if "autolog()" in code]
    read = (
        "import mlflow\nfor r in mlflow.search_runs(output_format='list'): print(r.data.tags.get('neuraldbg.verdict'))"
    )
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        folder.mkdir()
        run(block, folder)
        verdicts = run(read, folder).split()
        if verdicts == ["healthy"]:
            break
    assert verdicts == ["healthy"]


def test_the_table_of_settings_is_the_settings() -> None:
    table = README[README.index("## Settings") : README.index("## Install")]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert listed == set(Settings.model_fields)


def test_every_file_that_the_pages_link_to_exists() -> None:
    for page in ("README.md", "CHANGELOG.md", "logic_graph.md"):
        links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
        local = [link for link in links if "://" not in link]
        assert [link for link in local if not (ROOT / link).exists()] == []
