"""A tracking server on PostgreSQL, and a browser: all on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch

from neuraldbg.integrations.mlflow import autolog
from tests.services.servers import Postgres, Server


@pytest.fixture(scope="session", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other accounts, `postgres` among them
        postgres = Postgres(Path(folder))
        server = Server(tmp_path_factory.mktemp("server"), postgres)
        yield server
        server.stop()
        postgres.stop()


@pytest.fixture(name="experiment")
def _experiment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """An experiment of this test's on the server; its id. Autolog is off afterwards."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(server.url)
    name = request.node.name.removeprefix("test_").replace("_", " ")
    yield str(mlflow.set_experiment(name).experiment_id)
    autolog(disable=True)
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="session", name="browser")
def _browser() -> Iterator[Any]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()
