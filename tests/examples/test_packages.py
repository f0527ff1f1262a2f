"""The example packages install offline, pass their own tests, and join by their entry points alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[2] / "examples" / "packages"
NAMES = ("clamped_loss", "webhook")

# A training whose loss is clamped, with nothing imported of either package, and a server that the sink posts to.
TRAINS = """
import http.server, json, os, threading, torch
from torch import nn

got = []

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["NEURALDBG_WEBHOOK"] = f"http://127.0.0.1:{server.server_port}"

from neuraldbg import NeuralDbg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with NeuralDbg(model) as dbg:
    for _ in range(120):
        inputs = torch.randn(16, 4)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().clamp(max=0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss.item())
print(json.dumps([got, str(dbg.diagnose().verdict), [h.cause for h in dbg.explain_failure()]]))
"""


def python(*arguments: str, folder: Path, path: Path | None = None) -> str:
    """Standard output of a Python whose import path begins with `path`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"PYTHONPATH": str(path)} if path is not None else {})
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="installed")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that both packages are installed into; built from a copy, for a build leaves files behind."""
    folder = tmp_path_factory.mktemp("packages")
    copies = [str(shutil.copytree(PACKAGES / name, folder / name)) for name in NAMES]
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check")
    python("-m", "pip", "install", "--quiet", *offline, "--target", "target", *copies, folder=folder)
    return folder / "target"


def test_an_installed_rule_claims_and_an_installed_sink_receives(installed: Path, tmp_path: Path) -> None:
    got, verdict, causes = json.loads(python("-c", TRAINS, folder=tmp_path, path=installed))
    assert (verdict, causes[0]) == ("failed", "clamped_loss")
    assert [(post["verdict"], post["cause"], post["layer"]) for post in got] == [("failed", "clamped_loss", "2")]


def test_without_the_packages_the_training_gets_no_cause(tmp_path: Path) -> None:
    got, verdict, causes = json.loads(python("-c", TRAINS, folder=tmp_path))
    assert (got, verdict, causes) == ([], "warning", [])


def test_an_installed_rule_has_its_page(installed: Path, tmp_path: Path) -> None:
    said = python("-m", "neuraldbg", "explain", "clamped_loss", folder=tmp_path, path=installed)
    assert "A clamp passes no gradient" in said


def test_the_packages_pass_their_own_tests(installed: Path, tmp_path: Path) -> None:
    for name in NAMES:
        shutil.copy(PACKAGES / name / f"test_{name}.py", tmp_path)
    said = python("-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path), folder=tmp_path, path=installed)
    assert " passed" in said
