"""What runs elsewhere: workflows, hooks and compose file fit their schemas and call only what is in the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LOCKED = {line.partition("==")[0] for line in (ROOT / "requirements-dev.lock").read_text().splitlines()}


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def commands(workflow: Path) -> list[str]:
    """The shell text of every step."""
    return [step["run"] for job in jobs(workflow).values() for step in job["steps"] if "run" in step]


def validated(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """check-jsonschema with a schema that it carries: nothing is fetched."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.compose-spec", [ROOT / "docker-compose.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_each_file_fits_its_schema(schema: str, files: list[Path]) -> None:
    done = validated(schema, *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_that_does_not_fit_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    steps: wrong\n")
    assert validated("vendor.github-workflows", tmp_path / "bad.yml").returncode == 1


def test_the_four_workflows_are_there() -> None:
    assert [file.stem for file in WORKFLOWS] == ["ci", "docs", "publish-summary-to-google-docs", "release"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_only_read_unless_one_of_its_jobs_says_more(workflow: Path) -> None:
    whole = yaml.safe_load(workflow.read_text())
    assert whole["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow.read_text()
    assert [name for name, job in whole["jobs"].items() if job.get("permissions", {}).get("contents") == "write"] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_calls_only_targets_and_scripts_that_exist(workflow: Path) -> None:
    text = "\n".join(commands(workflow))
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) - TARGETS == set()
    assert [path for path in re.findall(r"scripts/[\w.]+", text) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_no_command_is_put_together_from_what_a_stranger_can_write(workflow: Path) -> None:
    """A title or branch name inside `${{ }}` of a command would be run as shell; the environment carries them."""
    inside = re.findall(r"\$\{\{(.*?)\}\}", "\n".join(commands(workflow)), re.DOTALL)
    assert [expression for expression in inside if re.search(r"\b(github|inputs|secrets)\.", expression)] == []


def test_the_tests_run_on_every_version_of_python_that_we_name() -> None:
    (ci,) = [file for file in WORKFLOWS if file.stem == "ci"]
    matrix = jobs(ci)["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13"]
    oldest = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest and matrix["include"][0]["torch"] == f"{oldest[1]}.*"


def test_only_the_upload_gets_an_identity_and_there_is_no_token() -> None:
    (release,) = [file for file in WORKFLOWS if file.stem == "release"]
    assert [name for name, job in jobs(release).items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert "secrets." not in release.read_text()


def test_the_hooks_are_the_projects_own_tools() -> None:
    hooks = [hook for repository in HOOKS for hook in repository["hooks"]]
    programs = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert {repository["repo"] for repository in HOOKS} == {"local"}
    assert programs - LOCKED == set()


def test_make_check_looks_for_holes_in_all_that_ships() -> None:
    done = subprocess.run(["make", "-n", "check"], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "/bandit " in line]
    assert {"--configfile", "pyproject.toml", "neuraldbg", "integrations"} <= set(line.split())


def test_the_coverage_gate_stands_at_sixty_percent_or_higher_and_is_run() -> None:
    gate = re.search(r"^fail_under = (\d+)", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert gate and int(gate[1]) >= 60
    done = subprocess.run(["make", "-n", "coverage"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--cov " in done.stdout
    (ci,) = [file for file in WORKFLOWS if file.stem == "ci"]
    assert "make coverage" in commands(ci)
