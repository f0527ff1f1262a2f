"""All tests run strictly: an error inside NeuralDBG, which a user's loop would never see, fails the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["NEURALDBG_STRICT"] = "1"
# A client that retries draws its jitter from Python's own generator, on a thread that may outlive its test: another
# test that compares two trainings which draw from it would see them differ.
os.environ["MLFLOW_HTTP_REQUEST_BACKOFF_JITTER"] = "0"


TRACKERS = {Path(__file__).parent / "integrations", Path(__file__).parent / "services"}
OTHERS = (
    "ignore::FutureWarning:mlflow",
    "ignore::DeprecationWarning:mlflow",
    "ignore::UserWarning:mlflow",
    "ignore:The ``noload`` loader strategy is deprecated",
    "ignore:unclosed database:ResourceWarning",
    "ignore:.*sqlite3.Connection:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """MLflow's own warnings, its tables', and SQLite connections that its pool leaves to the collector."""
    for item in items:
        if TRACKERS & set(item.path.parents):
            for ignored in OTHERS:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def _one_thread():
    """Two cores are shared by everything; more threads only make small models slower."""
    import torch

    torch.set_num_threads(1)
