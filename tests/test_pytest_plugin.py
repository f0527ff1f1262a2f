"""The fixture, in a pytest of its own: what it asserts and says, and that it costs nothing unused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import sys
import pytest
import torch
from torch import nn

torch.set_num_threads(1)

def train(model, bad=False):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(40):
        inputs = torch.randn(16, 4)
        if bad and step >= 20:
            inputs[0, 0] = float("nan")
        loss = (model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

def test_healthy(neuraldbg):
    model = make()
    with neuraldbg(model):
        train(model)
    neuraldbg.assert_healthy()
    with pytest.raises(pytest.fail.Exception, match="no training failed of nan_in_input"):
        neuraldbg.assert_fails("nan_in_input")

def test_failing_is_shown(neuraldbg):
    model = make()
    with neuraldbg(model):
        train(model, bad=True)
    neuraldbg.assert_healthy()

def test_cause(neuraldbg):
    model = make()
    with neuraldbg(model):
        train(model, bad=True)
    neuraldbg.assert_fails("nan_in_input")
    with pytest.raises(pytest.fail.Exception, match="in layer 'nowhere'"):
        neuraldbg.assert_fails("nan_in_input", layer="nowhere")

def test_misspelt(neuraldbg):
    with pytest.raises(ValueError, match="unknown cause 'nan_in_inpt'; did you mean nan_in_input"):
        neuraldbg.assert_fails("nan_in_inpt")

def test_nothing_trained(neuraldbg):
    with neuraldbg.trainings():
        make()
    neuraldbg.assert_healthy()

def test_made_inside(neuraldbg):
    with neuraldbg.trainings() as seen:
        models = [make(), make()]
        for bad, model in enumerate(models):
            train(model, bad=bool(bad))
    assert [str(d.verdict) for d in seen.diagnoses] == ["healthy", "failed"]
    assert sum(map(hooks, models)) == 0
    neuraldbg.assert_fails("nan_in_input")

left = make()

def test_left_open(neuraldbg):
    dbg = neuraldbg(left)
    dbg.__enter__()
    train(left)
    neuraldbg.assert_healthy()
    assert hooks(left)

def test_is_closed_afterwards():
    assert hooks(left) == 0
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEURALDBG", "PYTEST"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
    )


def test_tests_that_do_not_use_it_load_nothing_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n    assert not {'torch', 'pydantic', 'jinja2'} & set(sys.modules)\n"
        "    assert 'neuraldbg.pytest_plugin' in sys.modules\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "neuraldbg" in run(tmp_path, "--fixtures").stdout


@pytest.fixture(scope="module", name="told")
def _told(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "test_it.py").write_text(TESTS)
    done = run(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_healthy_causes_and_trainings_made_inside_pass_and_two_fail(told: str) -> None:
    assert "2 failed, 6 passed" in told
    assert {line.split()[1].partition("::")[2] for line in told.splitlines() if line.startswith("FAILED test_it")} == {
        "test_failing_is_shown",
        "test_nothing_trained",
    }


def test_a_failure_shows_the_verdict_and_what_to_do_without_our_frames(told: str) -> None:
    assert "FAILED: NaN values detected" in told and "Next: " in told
    assert "no training was seen: train inside `with neuraldbg(model):`" in told
    assert "pytest_plugin.py" not in told
