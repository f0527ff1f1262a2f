"""Real W&B runs without an account and without a network: offline ones, and ones against a server on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

from neuraldbg.integrations.wandb import autolog

from .loopback import KEY, Fault, Server
from .offline_log import Log, settled

FOLDERS = ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_ARTIFACT_DIR")


@pytest.fixture(name="wandb_folders", scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """wandb reads its environment when its service starts, once a process; nothing of it may reach outside."""
    home = tmp_path_factory.mktemp("wandb-home")
    with pytest.MonkeyPatch.context() as patch:
        for name in FOLDERS:
            patch.setenv(name, str(home / name.lower()))
        patch.setenv("NETRC", str(home / "netrc"))
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_CONSOLE", "off")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("WANDB__DISABLE_STATS", "true")
        wandb.teardown()  # a test elsewhere may have started the service, with another environment
        yield
        wandb.teardown()


def own_service(**more: str) -> dict[str, str]:
    """The environment for a process of its own: wandb would have it share this one's service, by a variable."""
    return {**{k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}, **more}


@pytest.fixture(name="store", autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the place of MLflow's store: autolog is off before and after, no run stays, and we stand in tmp_path."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    yield
    autolog(disable=True)
    if wandb.run is not None:
        wandb.run.finish()


@pytest.fixture(name="begin")
def _begin(tmp_path: Path) -> Callable[..., Any]:
    """begin(**options): an offline run in tmp_path."""

    def begin(**options: Any) -> Any:
        return wandb.init(**{"project": "p", "mode": "offline", "dir": str(tmp_path), **options})

    return begin


@pytest.fixture(name="told")
def _told() -> Callable[[Any], Log]:
    """told(run): what the finished run's log holds."""

    def told(run: Any) -> Log:
        run.finish()
        (path,) = Path(run.dir).parent.glob("*.wandb")
        return settled(path)

    return told


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    """A server on loopback; what it was asked and did not know fails the test."""
    server = Server()
    yield server
    server.fault = Fault()
    server.close()
    assert server.unknown == []


@pytest.fixture(name="online")
def _online(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """online(**options): a run on the loopback server; `seconds` bounds its finish, as a user may set it."""
    monkeypatch.setenv("WANDB_BASE_URL", server.url)  # up to 0.29 a table asks this server's version, not the run's
    monkeypatch.setenv("WANDB_API_KEY", KEY)

    def online(seconds: float = 20.0, **options: Any) -> Any:
        settings = wandb.Settings(base_url=server.url, api_key=KEY, finish_timeout=seconds)
        return wandb.init(**{"project": "p", "mode": "online", "dir": str(tmp_path), "settings": settings, **options})

    return online


@pytest.fixture(name="elsewhere")
def _elsewhere(server: Server, tmp_path: Path) -> Callable[..., str]:
    """elsewhere(*arguments): Python in a process of its own that knows the server; what it printed, both ways."""

    def elsewhere(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=own_service(WANDB_MODE="online", WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return elsewhere
