"""What the pages say of W&B is so: the example, the page's code, and the names in its table."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import wandb

from neuraldbg.integrations.wandb import WandbSink

from .sessions import FAILED, FILES, session

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "wandb.md").read_text()


def test_the_example_names_the_broken_input_and_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "wandb_offline.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith("failed: nan_in_input since step 120\n")
    assert Path(said.split("the report: ")[1].strip()).is_file()


def test_the_pages_code_leaves_a_healthy_run(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    wandb.teardown()  # wandb takes the folder that its service was started in
    exec(block, {})
    (saved,) = tmp_path.glob("wandb/offline-run-*/files/neuraldbg/diagnosis.json")
    assert json.loads(saved.read_text())["verdict"] == "healthy"


def test_the_table_of_the_page_names_every_column_key_and_file(begin: Any, told: Any) -> None:
    run = begin()
    session(WandbSink())
    log = told(run)
    table = PAGE[PAGE.index("## What is in the run") : PAGE.index("Each part has a flag")]
    named = set(re.findall(r"`([\w/.-]+)`", table))
    written = {k for k in log.summary if k.startswith("neuraldbg_")} | FILES
    written |= {
        k for row in log.rows for k in row if k.startswith("neuraldbg/") and not k.startswith("neuraldbg/event/")
    }
    assert written - named == set()
    assert {name for name in named if name.startswith("neuraldbg_")} - set(log.summary) == {"neuraldbg_exception"}
    assert FAILED.verdict == log.config["neuraldbg"]["verdict"]
