"""What would be seen of a model: found by name, run once if a batch is given, refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from neuraldbg.watch import NeuralDbg
from neuraldbg.watch.preview import batch, load, preview

SOURCE = """
from torch import nn

model = nn.Linear(2, 1)
Words = str
broken = nn.Linear


def make():
    return nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 1))
"""


@pytest.fixture(name="file")
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "nets_here.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return "nets_here.py"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nets_here.py", "names no model; give package.module:name"),
        ("gone.py:model", "there is no file gone.py; give its path from here"),
        ("no_such_package_here:model", "does not import: ModuleNotFoundError"),
        ("nets_here.py:absent", "nets_here.py has no 'absent'; name a model"),
        ("nets_here.py:Words", "is no torch.nn.Module but str; name a model"),
        ("nets_here.py:broken", "does not make a model.*name a function without arguments"),
    ],
)
def test_what_is_no_model_is_refused_by_its_name(file: str, target: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load(target)


def test_a_model_and_what_makes_one_are_found_in_a_file_and_in_a_module(file: str) -> None:
    assert isinstance(load(f"{file}:model"), nn.Linear)
    assert isinstance(load(f"{file}:make"), nn.Sequential)
    assert isinstance(load("torch.nn:Identity"), nn.Identity)


@pytest.mark.parametrize("shape", ["", "3,", "a,b", "0,4", "-1", "3,4:text"])
def test_a_shape_that_is_none_is_refused(shape: str) -> None:
    with pytest.raises(ValueError, match="is no shape; give sizes such as 32,10"):
        batch(shape)


def test_shapes_of_numbers_and_of_tokens() -> None:
    assert batch("3,4").shape == (3, 4) and batch("3x4:float").dtype is torch.float32
    assert batch("3,4:int").dtype is torch.int64 and set(batch("50:int").tolist()) == {0, 1}


def test_a_model_that_does_not_take_the_batch_is_told_with_its_shape() -> None:
    with pytest.raises(ValueError, match=r"Linear does not take a batch of shape \(3, 5\)"):
        preview(nn.Linear(4, 1), torch.randn(3, 5))
    with pytest.raises(ValueError, match="has no parameters"):
        preview(nn.ReLU())


def test_a_script_that_reads_its_arguments_does_not_read_ours(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["neuraldbg", "doctor", "script_here.py:model"])
    read = "import argparse\nfrom torch import nn\nargparse.ArgumentParser().parse_args()\nmodel = nn.Linear(2, 1)\n"
    Path("script_here.py").write_text(read)
    assert isinstance(load("script_here.py:model"), nn.Linear)
    Path("ends_here.py").write_text("import sys\nsys.exit(2)\n")
    with pytest.raises(ValueError, match=r"ends_here\.py ends the program on import"):
        load("ends_here.py:model")


def test_without_a_batch_the_parts_are_known_and_with_one_which_of_them_ran(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 1))
    still = preview(model)
    assert [m.kind for m in still.modules] == ["Sequential", "Linear", "ReLU", "Linear"]
    assert {m.order for m in still.modules} == {None} and len(still.parameters) == 4
    ran = preview(model, batch("8,10"))
    assert sorted(m.order for m in ran.modules if m.order is not None) == [0, 1, 2, 3]
    assert ran.coverage.modules_seen == 4 and len(NeuralDbg.active) == 0
