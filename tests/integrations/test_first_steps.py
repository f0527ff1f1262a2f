"""A process that is killed within its first steps leaves them in the journal that a tracker's sink keeps beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuraldbg import journal
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.integrations.mlflow import MlflowSink
from neuraldbg.integrations.wandb import WandbSink
from neuraldbg.record import RunFacts
from neuraldbg.testing import record

FACTS = RunFacts(models=("Net",))


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("kind", [MlflowSink, WandbSink])
def test_steps_that_wait_are_in_the_journal_of_a_trackers_sink(kind: Any, tmp_path: Path) -> None:
    sink = kind(spool_dir=tmp_path)
    sink.open(FACTS)
    for step in range(2):
        sink.held(step, record(step, loss=2.0 - step), FACTS)
    (path,) = tmp_path.rglob("*.jsonl")
    reading = journal.read(path)
    assert [r.step for r in reading.held] == [0, 1] and reading.facts.models == ("Net",)
    assert reading.series["loss"].points == ((0, 2.0), (1, 1.0))
    sink.close(Diagnosis(Verdict.RUNNING, 0.0))
    assert not list(tmp_path.rglob("*.jsonl"))
