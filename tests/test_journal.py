"""A journal gives back what the session knew, however the session ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg, journal
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.journal import Journal
from neuraldbg.record import Coverage, RunFacts
from neuraldbg.report.json import to_json

FACTS = RunFacts(models=("Net",), structure=frozenset({"residual"}))
LATER = RunFacts(models=("Net",), structure=frozenset({"residual"}), loss_kind="mse", coverage=Coverage(steps=7))
SPIKE = observed("loss_spike", 4, None, height=float("inf"))
FINAL = Diagnosis(Verdict.FAILED, 0.9, events=(SPIKE,), facts=LATER, series={"loss": ((0, 2.0),)}, steps=9)


def written(path: Path, *, close: bool = True, max_mb: float = 64.0) -> Path:
    sink = Journal(path, max_mb=max_mb)
    sink.open(FACTS)
    sink.points(0, {"loss": 2.0})
    sink.points(1, {"loss": 1.5, "rate": 0.1})
    sink.event(SPIKE)
    sink.facts(LATER)
    if close:
        sink.close(FINAL)
    return path


def test_a_file_that_is_no_journal_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match=r"notes\.txt is not a journal"):
        journal.read(path)


def test_an_empty_file_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    with pytest.raises(ValueError, match="no header"):
        journal.read(path)


def test_a_newer_schema_is_refused_with_what_to_type(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text('{"kind": "header", "schema_version": 99}\n')
    with pytest.raises(ValueError, match="pip install -U neuraldbg"):
        journal.read(path)


def test_a_damaged_line_in_the_middle_is_an_error_not_a_silent_end(tmp_path: Path) -> None:
    path = written(tmp_path / "j.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], '{"kind": \n', *lines[2:]]))
    with pytest.raises(ValueError, match="damaged"):
        journal.read(path)


def test_lines_of_a_kind_unknown_yet_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "j.jsonl")
    with path.open("a") as file:
        file.write('{"kind": "invented_later"}\n')
    assert journal.read(path).diagnosis == FINAL


def test_facts_events_series_and_diagnosis_come_back_equal(tmp_path: Path) -> None:
    reading = journal.read(written(tmp_path / "deep" / "j.jsonl"))
    assert reading.facts == LATER
    assert reading.events == (SPIKE,)
    assert {name: series.points for name, series in reading.series.items()} == {
        "loss": ((0, 2.0), (1, 1.5)),
        "rate": ((1, 0.1),),
    }
    assert reading.diagnosis == FINAL
    assert not reading.truncated


def test_the_last_line_may_be_cut_at_any_byte(tmp_path: Path) -> None:
    whole = written(tmp_path / "j.jsonl", close=False).read_bytes()
    last = len(whole.rstrip(b"\n").rsplit(b"\n", 1)[1]) + 1
    cut = tmp_path / "cut.jsonl"
    for missing in range(2, last):
        cut.write_bytes(whole[:-missing])
        assert journal.read(cut).events == (SPIKE,)


def test_without_a_final_line_the_run_is_what_was_written_so_far(tmp_path: Path) -> None:
    reading = journal.read(written(tmp_path / "j.jsonl", close=False))
    assert reading.diagnosis is None
    assert reading.run.facts == LATER
    assert reading.run.events == (SPIKE,)
    assert reading.run.steps == 7
    assert reading.run.get("loss").values == (2.0, 1.5)


def test_unchanged_facts_are_not_written_again(tmp_path: Path) -> None:
    path = written(tmp_path / "j.jsonl", close=False)
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["header", "facts", "points", "points", "event", "facts"]
    second = json.loads(path.read_text().splitlines()[-1])["value"]
    assert set(second) == {"loss_kind", "coverage"}


def test_a_full_journal_says_so_once_and_still_ends_with_the_diagnosis(tmp_path: Path) -> None:
    path = written(tmp_path / "j.jsonl", max_mb=0.0006)
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines].count("truncated") == 1
    assert journal.read(path).truncated
    assert journal.read(path).diagnosis == FINAL


def test_a_full_journal_without_an_end_says_that_the_rest_was_not_looked_at(tmp_path: Path) -> None:
    whole = journal.rebuild(written(tmp_path / "whole.jsonl", close=False))
    full = journal.rebuild(written(tmp_path / "full.jsonl", close=False, max_mb=0.0006))
    assert journal.FULL not in whole.facts.coverage.notes and journal.FULL in full.facts.coverage.notes
    assert "Not looked at: what came after the journal was full (journal_mb)" in str(full)


def test_a_long_training_writes_ever_fewer_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "DENSE_POINTS", 10)
    sink = Journal(tmp_path / "j.jsonl")
    sink.open(FACTS)
    for step in range(1000):
        sink.points(step, {"loss": 1.0})
    steps = journal.read(sink.path).series["loss"].steps
    assert steps[:10] == tuple(range(10))
    assert 40 < len(steps) < 80
    assert steps[-1] > 900


def test_rebuild_takes_the_final_diagnosis_as_it_stands(tmp_path: Path) -> None:
    assert journal.rebuild(written(tmp_path / "j.jsonl")) == FINAL


KILLED = """
import os, signal, torch
from torch import nn
from neuraldbg import NeuralDbg
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
with NeuralDbg(model):
    for step in range(90):
        x = torch.randn(16, 4)
        y = x.sum(1, keepdim=True)
        if step >= 50:
            x[0, 2] = torch.nan
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    import time; time.sleep(0.5)  # the worker writes what it has
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_training_that_was_killed_is_diagnosed_from_its_journal(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "NEURALDBG_DIR": str(tmp_path)}, timeout=120, check=False
    )
    assert result.returncode == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    diagnosis = journal.rebuild(path)
    assert diagnosis.verdict is Verdict.FAILED
    assert diagnosis.top is not None
    assert (diagnosis.top.cause, diagnosis.top.step) == ("nan_in_input", 50)
    assert 85 <= diagnosis.steps <= 90


def test_a_journal_without_its_last_line_gives_the_live_diagnosis(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with NeuralDbg(model, journal_dir=tmp_path) as dbg:
        for step in range(120):
            x = torch.randn(16, 4)
            y = x.sum(1, keepdim=True)
            if step >= 60:
                x[0, 2] = torch.nan
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    (path,) = tmp_path.iterdir()
    assert to_json(journal.rebuild(path)) == to_json(dbg.diagnose())
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    rebuilt = replace(journal.rebuild(path), facts=dbg.diagnose().facts)  # their last update is the session's end
    assert to_json(rebuilt) == to_json(dbg.diagnose())
