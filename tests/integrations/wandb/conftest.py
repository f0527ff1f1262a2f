"""Real W&B runs without an account and without a network: offline ones, and ones against a server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

from neuraldbg.integrations.wandb import autolog

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
        yield
        wandb.teardown()


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
