"""All tests run strictly: an error inside NeuralDBG, which a user's loop would never see, fails the test."""

from __future__ import annotations

import os

import pytest

os.environ["NEURALDBG_STRICT"] = "1"
# A client that retries draws its jitter from Python's own generator, on a thread that may outlive its test: another
# test that compares two trainings which draw from it would see them differ.
os.environ["MLFLOW_HTTP_REQUEST_BACKOFF_JITTER"] = "0"


@pytest.fixture(autouse=True)
def _one_thread():
    """Two cores are shared by everything; more threads only make small models slower."""
    import torch

    torch.set_num_threads(1)
