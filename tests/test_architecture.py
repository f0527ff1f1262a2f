"""The folders draw the architecture; this is the check that it is kept.

The hub knows no spoke and no tracker, torch lives in neuraldbg/watch alone, and `import neuraldbg` loads neither.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HUB = ROOT / "neuraldbg"
SPOKES = ("integrations", "neuraldbg.integrations")
TRACKERS = ("mlflow", "wandb", "lightning", "transformers", "optuna")
HEAVY = (*TRACKERS, "torch")
LONGEST = 500
PAGE = ("What it is", "How it looks", "What speaks against it", "What to do", "Reference")


def imported(source: str, package: str = "neuraldbg") -> set[str]:
    """Every module that the source imports, inside functions and through import_module("...") too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                names.add(str(node.args[0].value))
    return names


def offences(source: str, package: str, torch_allowed: bool) -> list[str]:
    """What the source imports and a file of the hub must not."""
    banned = (*SPOKES, *TRACKERS, *(() if torch_allowed else ("torch",)))
    return sorted(
        name
        for name in imported(source, package)
        if any(name == other or name.startswith(f"{other}.") for other in banned)
    )


def sources(*folders: str) -> list[Path]:
    """Our files: not those of installed packages, nor of environments that a benchmark made beside it."""
    return [
        file
        for folder in folders
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not any(part == "node_modules" or part.startswith(".") for part in file.relative_to(ROOT).parts)
    ]


def test_the_hub_imports_no_spoke_no_tracker_and_torch_only_in_watch() -> None:
    found = {
        str(file.relative_to(ROOT)): bad
        for file in sources("neuraldbg")
        if (
            bad := offences(
                file.read_text(),
                ".".join(file.relative_to(ROOT).parent.parts),
                torch_allowed=file.is_relative_to(HUB / "watch"),
            )
        )
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "package", "bad"),
    [
        ("import torchmetrics, wandb_tools", "neuraldbg", []),
        ("from neuraldbg import run", "neuraldbg.rules", []),
        ("from . import integrity", "neuraldbg", []),
        ("import torch.nn as nn", "neuraldbg.rules", ["torch.nn"]),
        ("def f():\n    import mlflow", "neuraldbg", ["mlflow"]),
        ("from neuraldbg import integrations", "neuraldbg.report", ["neuraldbg.integrations"]),
        (
            "from ..integrations import mlflow",
            "neuraldbg.report",
            ["neuraldbg.integrations", "neuraldbg.integrations.mlflow"],
        ),
        ("import importlib\nimportlib.import_module('wandb')", "neuraldbg", ["wandb"]),
    ],
)
def test_each_way_of_importing_what_is_banned_would_be_noticed(source: str, package: str, bad: list[str]) -> None:
    assert offences(source, package, torch_allowed=False) == bad


def test_torch_is_no_offence_in_watch() -> None:
    assert offences("import torch", "neuraldbg.watch", torch_allowed=True) == []


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter has after running the code."""
    script = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_importing_the_package_loads_neither_torch_nor_a_tracker() -> None:
    assert loaded_by("import neuraldbg, neuraldbg.diagnosis, neuraldbg.settings") == set()


def test_what_an_import_loads_would_be_noticed() -> None:
    """The watcher is asked for by name, and torch comes with it: so the test above can fail."""
    assert loaded_by("from neuraldbg import NeuralDbg") == {"torch"}


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    everywhere = sources("neuraldbg", "integrations", "tests", "examples", "benchmarks")
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in everywhere}
    assert len(lengths) > 10
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def missing_parts(page: str) -> list[str]:
    """The headings that a page lacks or has out of order."""
    lines = [line.strip() for line in page.splitlines()]
    rest = iter(lines)
    return [part for part in PAGE if part not in rest]


def test_every_cause_has_a_page_of_the_same_form() -> None:
    pages = {
        file.stem: ast.get_docstring(ast.parse(file.read_text())) or ""
        for file in sources("neuraldbg/rules")
        if not file.stem.startswith("_")
    }
    assert {name: missing for name, page in pages.items() if (missing := missing_parts(page))} == {}


def test_a_page_without_a_remedy_would_be_noticed() -> None:
    page = "A title.\n\nWhat it is\n    x\nHow it looks\n    x\nWhat speaks against it\n    x\nReference\n    x"
    assert missing_parts(page) == ["What to do", "Reference"]
