"""`neuraldbg run`: the script behaves as under `python`, and what it trained is told on stderr and in a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuraldbg.diagnosis import Verdict
from neuraldbg.report.json import from_json
from neuraldbg.runfolder import read, sessions

TRAIN = """
import random, sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    inputs = torch.randn(16, 4)
    if step >= 40 and "bad" in sys.argv:
        inputs[0, 3] = float("nan")
    loss = (model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TOLD = (
    TRAIN
    + """
weights = [p.detach().numpy().tobytes().hex() for p in model.parameters()]
print(sys.argv, __name__, weights, torch.rand(1).item(), random.getstate()[1][:3] == random.getstate()[1][:3])
"""
)


@pytest.fixture(name="bare_environment")
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("NEURALDBG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NEURALDBG_STRICT", "1")


pytestmark = pytest.mark.usefixtures("bare_environment")


def python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "neuraldbg", "run", *arguments, **environment)


def script(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return name


def folders(at: Path) -> list[Path]:
    return sorted((at / "neuraldbg_runs").glob("*"))


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "gone.py")
    assert done.returncode == 2 and "there is no script gone.py" in done.stderr and "Traceback" not in done.stderr
    assert "give the script in it" in run(tmp_path, ".").stderr


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "no_such_module_here")
    assert done.returncode == 2 and "there is no module 'no_such_module_here'" in done.stderr


def test_a_folder_that_cannot_be_made_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = run(tmp_path, "--dir", "taken/runs", script(tmp_path, "print('ran')"))
    assert done.returncode == 2 and done.stdout == "" and "choose another with --dir" in done.stderr


def test_settings_that_are_not_valid_are_refused_before_the_script_runs(tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, "print('ran')"), NEURALDBG_CADENCE="often")
    assert done.returncode == 2 and done.stdout == "" and "cadence" in done.stderr


def test_switched_off_the_script_runs_alone(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys, torch; print([m for m in sys.modules if m.startswith('neuraldbg.w')])")
    done = run(tmp_path, "--fail-on", "failed", name, NEURALDBG="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert not folders(tmp_path)


def test_a_script_without_torch_gets_no_torch_and_no_folder(tmp_path: Path) -> None:
    """What it imports is decided by the script: an early import of torch would read its environment too early."""
    done = run(tmp_path, script(tmp_path, "import sys; print({'torch', 'pydantic', 'rich'} & set(sys.modules))"))
    assert (done.returncode, done.stdout) == (0, "set()\n")
    assert done.stderr == "neuraldbg: no training was seen: torch was not imported\n"
    told = json.loads(run(tmp_path, "--json", "train.py").stderr)
    assert told == {"nothing_seen": "torch was not imported", "folder": None, "sessions": []}
    assert not folders(tmp_path)


def test_a_script_that_trains_nothing_is_told_so(tmp_path: Path) -> None:
    text = "import torch; torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0); torch.nn.Linear(1, 1)"
    done = run(tmp_path, script(tmp_path, text))
    assert done.returncode == 0 and "no training was seen: no optimizer" in done.stderr and not folders(tmp_path)
    told = json.loads(run(tmp_path, "--json", "train.py").stderr)
    assert told["nothing_seen"].startswith("no optimizer") and told["sessions"] == []


def test_a_script_that_fails_before_its_first_step_is_not_called_healthy(tmp_path: Path) -> None:
    text = "import torch, neuraldbg\nwith neuraldbg.NeuralDbg(torch.nn.Linear(1, 1)):\n    open('gone')\n"
    done = run(tmp_path, "--dir", "out", script(tmp_path, text))
    assert done.returncode == 1 and "NOTHING SEEN" in done.stderr and "FileNotFoundError" in done.stderr
    assert "HEALTHY" not in done.stderr
    assert (tmp_path / "out" / "report.md").read_text().startswith("## NeuralDBG: nothing seen")


ENDINGS = {
    "returns": "",
    "exits with a number": "sys.exit(5)",
    "exits with words": "sys.exit('no data')",
    "raises": "def f():\n    raise RuntimeError('boom')\nf()",
    "chains": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('bad') from e",
    "is interrupted": "raise KeyboardInterrupt",
    "does not compile": "def (",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_the_end_of_a_script_is_that_under_python(tmp_path: Path, ending: str) -> None:
    """Exit code (a signal, where it was interrupted), stdout and the traceback are the same to the letter."""
    name = script(tmp_path, f"import sys\nprint(sys.argv, __file__, __name__, sys.path[0])\n{ending}\n")
    bare, ours = python(tmp_path, name, "--lr", "--help"), run(tmp_path, name, "--lr", "--help")
    assert (ours.returncode, ours.stdout) == (bare.returncode, bare.stdout)
    assert ours.stderr == bare.stderr + "neuraldbg: no training was seen: torch was not imported\n"


def test_a_hook_that_the_script_sets_for_its_exceptions_is_kept(tmp_path: Path) -> None:
    text = "import sys\nsys.excepthook = lambda k, e, t: print('hook', e, t.tb_next, t.tb_lineno)\nraise ValueError(1)"
    name = script(tmp_path, text)
    assert run(tmp_path, name).stdout == python(tmp_path, name).stdout == "hook 1 None 3\n"


def test_a_module_of_a_package_runs_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    text = (
        "import sys\nfrom . import __name__ as package\nprint(sys.argv, __name__, package, __spec__.name, sys.path[0])"
    )
    for name in ("__init__", "__main__", "train"):
        (tmp_path / "pkg" / f"{name}.py").write_text("" if name == "__init__" else text)
    for target in ("pkg", "pkg.train"):
        bare = python(tmp_path, "-m", target, "-x", "1")
        assert bare.stdout and run(tmp_path, "-m", target, "-x", "1").stdout == bare.stdout


def test_workers_that_are_spawned_find_the_scripts_functions(tmp_path: Path) -> None:
    text = """
import multiprocessing

def double(x):
    return 2 * x

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
"""
    assert run(tmp_path, script(tmp_path, text)).stdout == "[2, 4]\n"


def test_the_training_is_the_same_to_the_bit_and_its_folder_holds_journal_report_and_command(tmp_path: Path) -> None:
    name = script(tmp_path, TOLD)
    bare, ours = python(tmp_path, name, "bad"), run(tmp_path, name, "bad")
    assert bare.returncode == 0 and (ours.returncode, ours.stdout) == (0, bare.stdout)
    assert "FAILED" in ours.stderr and "NaN values detected" in ours.stderr
    (folder,) = folders(tmp_path)
    assert folder.name.endswith("-train") and f"report and journal are in {folder}" in ours.stderr
    names = {"journal.jsonl", "diagnosis.json", "neuraldbg.html", "report.md", "run.json"}
    assert {f.name for f in folder.iterdir()} == names
    diagnosis = read(folder / "diagnosis.json")
    assert diagnosis == read(folder / "journal.jsonl")
    assert diagnosis.top is not None and (diagnosis.top.cause, diagnosis.top.step) == ("nan_in_input", 40)
    assert json.loads((folder / "run.json").read_text())["arguments"] == ["bad"]


def test_the_exit_code_is_3_only_where_it_was_asked_for_and_the_script_did_not_fail(tmp_path: Path) -> None:
    name = script(tmp_path, TRAIN + "if 'fails' in sys.argv:\n    sys.exit(7)\n")
    assert run(tmp_path, "--fail-on", "failed", name).returncode == 0
    assert run(tmp_path, "--fail-on", "failed", name, "bad").returncode == 3
    assert run(tmp_path, "--fail-on", "warning", name, "bad", "fails").returncode == 7


def test_an_exception_of_the_training_is_told_with_its_layer(tmp_path: Path) -> None:
    text = TRAIN + "model(torch.randn(2, 5))\n"
    done = run(tmp_path, "--json", "--dir", "out", script(tmp_path, text))
    assert done.returncode == 1
    assert "Error" in done.stderr.splitlines()[-2]
    told = json.loads(done.stderr.splitlines()[-1])
    diagnosis = read(tmp_path / "out" / "diagnosis.json")
    assert (diagnosis.facts.exception, diagnosis.facts.exception_layer) == ("RuntimeError", "0")
    assert told["folder"] == str(tmp_path / "out") and from_json(json.dumps(told["sessions"][0])) == diagnosis


ENDED = """
import sys
from neuraldbg import NeuralDbg, TrainingFailed
watched = torch.nn.Linear(4, 1)
if "hook" in sys.argv:
    sys.excepthook = lambda kind, error, trace: print(kind.__name__, file=sys.stderr)
with NeuralDbg(watched, on_failure="raise"):
    optimizer = torch.optim.SGD(watched.parameters(), lr=0.01)
    for step in range(60):
        watched(torch.randn(16, 4) * (float("nan") if step > 19 else 1.0)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(("argument", "other"), [("", 1), ("hook", 2)], ids=["Python's traceback", "a hook of its own"])
def test_a_failure_that_ends_the_script_is_told_once_and_the_other_training_too(
    tmp_path: Path, argument: str, other: int
) -> None:
    """By the traceback, as under Python; where the script's own hook does not tell it, by us."""
    done = run(tmp_path, "--dir", "out", script(tmp_path, TRAIN + ENDED), argument)
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and told.count("NaN values detected") == 1 and told.count("No sign of failure") == 1
    assert done.stderr.count("╭") == other and "report and journal are in" in told
    assert len(sessions(tmp_path / "out")) == 2


def test_trainings_one_after_the_other_are_sessions_of_their_own_and_nothing_is_overwritten(tmp_path: Path) -> None:
    body = TRAIN.replace("\n", "\n    ")
    text = f"for turn in range(2):\n    {body}\n"
    for _ in range(2):
        assert run(tmp_path, "--dir", "out", script(tmp_path, text)).returncode == 0
    found = sessions(tmp_path / "out")
    assert [f.name for f in found] == [f"diagnosis{n}.json" for n in ("", "-2", "-3", "-4")]
    assert {read(f).verdict for f in found} == {Verdict.HEALTHY}


def test_two_models_that_train_together_are_one_session(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn
torch.manual_seed(0)
gen, disc = nn.Linear(2, 4), nn.Linear(4, 1)
opts = [torch.optim.Adam(m.parameters()) for m in (gen, disc)]
for step in range(20):
    fake = gen(torch.randn(8, 2))
    for opt, target in zip(opts, (1.0, 0.0)):
        opt.zero_grad()
        disc(fake if target else fake.detach()).sub(target).pow(2).mean().backward()
        opt.step()
"""
    run(tmp_path, "--dir", "out", script(tmp_path, text))
    (file,) = sessions(tmp_path / "out")
    assert len(read(file).facts.models) == 2


def test_a_training_on_a_thread_is_waited_for_and_a_rank_has_files_of_its_own(tmp_path: Path) -> None:
    body = TRAIN.replace("\n", "\n    ")
    look = "import importlib.util\nassert importlib.util.find_spec('torch') is not None\n"  # as some libraries do first
    text = f"{look}import threading\ndef train():\n    {body}\nthreading.Thread(target=train).start()\n"
    run(tmp_path, "--dir", "out", script(tmp_path, text), RANK="1")
    assert (tmp_path / "out" / "journal-rank1.jsonl").exists()
    assert read(tmp_path / "out" / "diagnosis-rank1.json").steps == 60


def test_a_killed_script_is_explained_by_its_journal(tmp_path: Path) -> None:
    text = TRAIN + "print('trained', flush=True)\nimport time\ntime.sleep(100)\n"
    name = script(tmp_path, text)
    process = subprocess.Popen(
        [sys.executable, "-m", "neuraldbg", "run", "--dir", "out", name, "bad"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "trained\n"
    journal = tmp_path / "out" / "journal.jsonl"
    deadline = time.monotonic() + 30
    while '"step":59' not in journal.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL  # our process is the script's: no parent was left behind
    process.stdout.close()
    assert sessions(tmp_path / "out") == [journal]
    shown = python(tmp_path, "-m", "neuraldbg", "show", "out")
    assert "FAILED" in shown.stdout and "NaN values detected" in shown.stdout
