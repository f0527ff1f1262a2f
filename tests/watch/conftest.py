from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from neuraldbg import NeuralDbg

_spec = importlib.util.spec_from_file_location("watch_loops", Path(__file__).with_name("loops.py"))
assert _spec is not None and _spec.loader is not None
_loops = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_loops)


@pytest.fixture(autouse=True)
def _seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(params=list(_loops.LOOPS))
def loop(request):
    """Each training loop in turn: a function (seed) -> (models, train)."""
    return _loops.LOOPS[request.param]


@pytest.fixture
def loops():
    return _loops


@pytest.fixture
def recorded():
    """Make a session that also keeps its records: (models, settings) -> (NeuralDbg, list of StepRecord)."""

    def make(*models, **settings):
        dbg, records = NeuralDbg(*models, **settings), []
        feed = dbg._session.feed

        def keep(record, facts):
            records.append(record)
            feed(record, facts)

        dbg._session.feed = keep
        return dbg, records

    return make
