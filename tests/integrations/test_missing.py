"""A spoke whose tracker is not installed says what to type, and the hub does without it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_importing_the_hub_loads_no_tracker() -> None:
    known = {"mlflow", "wandb", "lightning", "transformers", "optuna"}
    code = f"import sys, neuraldbg, neuraldbg.sinks; print(sorted({known} & set(sys.modules)))"
    assert run(code).stdout.strip() == "[]"


def test_that_test_can_fail() -> None:
    assert run("import sys, mlflow; print('mlflow' in sys.modules)").stdout.strip() == "True"


def test_without_mlflow_the_error_says_what_to_install() -> None:
    result = run("import sys; sys.modules['mlflow'] = None; import neuraldbg.integrations.mlflow")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: neuraldbg.integrations.mlflow needs the package 'mlflow', which is not installed; "
        "type: pip install 'neuraldbg[mlflow]'"
    )


@pytest.mark.parametrize("framework", ["lightning", "transformers", "optuna"])
def test_without_a_framework_the_error_says_what_to_install(framework: str) -> None:
    result = run(f"import sys; sys.modules[{framework!r}] = None; import neuraldbg.integrations.{framework}")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith(f"type: pip install 'neuraldbg[{framework}]'")
