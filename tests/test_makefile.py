"""The commands that a newcomer types exist and do what the pages say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def make_commands(text: str) -> set[str]:
    """Targets that a page or script calls, one a line or in back-ticks: `make NAME`."""
    return set(re.findall(r"(?:^|`)\s*make ([a-z][a-z-]*)", text, re.MULTILINE))


def test_help_lists_every_target() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"make ([a-z-]+)", done.stdout)) == TARGETS


def test_the_pages_and_the_check_call_only_targets_that_exist() -> None:
    called = {name: make_commands((ROOT / name).read_text()) for name in ("README.md", ".ci/run")}
    assert called[".ci/run"] == {"check", "test", "test-services", "judge"}
    assert {"demo", "test"} <= called["README.md"]
    assert set().union(*called.values()) - TARGETS == set()


def test_the_check_is_a_program_that_stops_at_the_first_failure() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)


def test_demo_and_test_make_their_own_environment() -> None:
    """On a machine without .venv both begin with it, and end with the job itself."""
    for target, job in (("demo", "examples/digits_sweep.py"), ("test", "pytest")):
        done = subprocess.run(
            ["make", "-n", "-W", "requirements-dev.lock", target], cwd=ROOT, capture_output=True, text=True, check=True
        )
        plan = done.stdout
        assert plan.index("-m venv .venv") < plan.index("-r requirements-dev.lock") < plan.rindex(job)
