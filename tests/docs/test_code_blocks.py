"""Every Python block of the docs runs, page by page, and prints what the page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GIVEN = Path(__file__).with_name("given")  # what a page takes as there, such as a model and a loop: one file a page
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
END = "--- end of a block ---"
CALL_TESTS = """
for _name, _value in list(globals().items()):
    if _name.startswith("test_") and not _value.__code__.co_argcount:
        _value()
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """(code, what it prints, "" where the page does not say) of each Python block."""
    return [(code, shown) for code, shown in BLOCK.findall(page)]


def stem(line: str) -> str:
    """The part of a line that a page promises: up to the figures in brackets or behind a semicolon."""
    return re.split(r" \(|;", line)[0].strip()


PAGES = [page for page in sorted(DOCS.glob("*.md")) if blocks(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    found = blocks(page.read_text())
    given = GIVEN / f"{page.stem}.py"
    parts = [given.read_text() if given.exists() else "", *(code for code, _ in found), CALL_TESTS]
    script = f'\nprint("{END}", flush=True)\n'.join(parts)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "WANDB_"))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**clean, "WANDB_MODE": "offline", "NEURALDBG_STRICT": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{END}\n")[1:-1]
    for (_, shown), out in zip(found, printed, strict=True):
        if shown:
            assert stem(out.splitlines()[0]) == stem(shown.splitlines()[0])


def test_pages_without_python_are_left_out_and_there_are_others() -> None:
    assert {"index", "mlflow", "extending"} <= {page.stem for page in PAGES}
    assert blocks("```\nmake test\n```\n") == []


def test_a_block_is_read_with_what_it_prints() -> None:
    page = (
        "```python\nprint(1)\n```\n\n```text\n1\n```\n\nand\n\n```python\nx = 2\n```\n\nso\n\n```text\nno output\n```\n"
    )
    assert blocks(page) == [("print(1)\n", "1\n"), ("x = 2\n", "")]
