"""Each question that people asked gets the verdict, the cause, the layer and the step that its index promises."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "questions"


def _index() -> ModuleType:
    spec = importlib.util.spec_from_file_location("questions_index", FOLDER / "index.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


index = _index()
FILES = index.files()


def test_there_are_the_25_questions_and_the_four_after_them() -> None:
    assert [path.stem[:3] for path in FILES] == [f"q{k:02}" for k in range(1, 30)] == list(index.ANSWERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_gets_its_verdict_cause_layer_and_step(path: Path) -> None:
    expected, diagnosis = index.ANSWERS[path.stem[:3]], index.answer(path)
    shown = index.first(diagnosis)
    assert str(diagnosis.verdict) == expected.verdict, diagnosis
    assert (shown.cause if shown else None) == expected.cause, diagnosis
    if expected.layer is not None:
        assert shown.layer_name == expected.layer
    if expected.steps is not None:
        assert expected.steps[0] <= shown.step <= expected.steps[1]
    for said in expected.says:
        assert said in str(diagnosis)
    assert len([line for line in str(diagnosis).splitlines() if not line.startswith("Also possible")]) <= 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_file_says_what_was_asked_where_and_what_is_wrong(path: Path) -> None:
    asked, where = index.question(index.load(path))
    assert asked and all(re.match(r"[\w.-]+/[\w.-]+#\d+$|https://", address) for address in where)
    assert "What is wrong: " in index.load(path).__doc__
    assert 20 <= len(path.read_text(encoding="utf-8").splitlines()) <= 65


def test_the_index_is_what_the_files_gave() -> None:
    """A row a question, with the verdict and the cause that the tests above find."""
    rows = [line for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| [")]
    assert len(rows) == len(FILES)
    for path, row in zip(FILES, rows, strict=True):
        expected = index.ANSWERS[path.stem[:3]]
        assert f"]({path.name})" in row and f"**{expected.verdict}**" in row
        assert expected.cause is None or f"`{expected.cause}`" in row
        assert row.endswith(f"| {expected.gap or 'yes'} |")
