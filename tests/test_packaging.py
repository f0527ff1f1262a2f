"""What is installed: every package folder, every data file, from a lock of exact pins."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import neuraldbg

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements-dev.lock").read_text().split("\n")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(line: str) -> str:
    """The distribution's name in a requirement such as 'mlflow>=2.18'."""
    found = re.match(r"[A-Za-z0-9._-]+", line)
    assert found, line
    return normal(found[0])


def packages_on_disk(root: Path) -> set[str]:
    """Package names of the folders that have an __init__.py; integrations/ is installed below neuraldbg."""
    names = set()
    for top, prefix in (("neuraldbg", "neuraldbg"), ("integrations", "neuraldbg.integrations")):
        for init in (root / top).rglob("__init__.py"):
            names.add(".".join((prefix, *init.parent.relative_to(root / top).parts)))
    return names


def test_every_package_folder_is_listed() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk(ROOT)


def test_a_folder_that_is_not_listed_would_be_noticed(tmp_path: Path) -> None:
    for folder in ("neuraldbg", "neuraldbg/forgotten", "integrations"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    assert packages_on_disk(tmp_path) == {"neuraldbg", "neuraldbg.forgotten", "neuraldbg.integrations"}


def test_every_data_file_of_the_package_matches_a_pattern() -> None:
    covered = {
        file
        for pattern in PROJECT["tool"]["setuptools"]["package-data"]["neuraldbg"]
        for file in (ROOT / "neuraldbg").glob(pattern)
    }
    data = {
        file
        for file in (ROOT / "neuraldbg").rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc") and "__pycache__" not in file.parts
    }
    assert data == covered


def test_the_version_is_the_same_everywhere() -> None:
    assert neuraldbg.__version__ == PROJECT["project"]["version"] == version("neuraldbg")


def test_the_lock_pins_by_name_and_version_alone() -> None:
    """No index, no file, no hash: the lock holds wherever the packages come from."""
    lines = [line for line in LOCK if line]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert "torch==2.13.0" in lines


def test_the_lock_holds_every_dependency_of_every_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [
        *(line for line in PROJECT["project"]["dependencies"] if "python_version <" not in line),
        *(line for extra in extras for line in extra),
        *PROJECT["dependency-groups"]["dev"],
    ]
    locked = {requirement(line) for line in LOCK if line}
    assert {requirement(line) for line in wanted} - locked == set()
