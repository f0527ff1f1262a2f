"""The first steps wait until it is known what they are; the journal holds them meanwhile, and nobody else is told."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg, journal
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.journal import Journal
from neuraldbg.record import Coverage, RunFacts, StepRecord
from neuraldbg.testing import Memory, layer_stats, parameter_stats, record
from neuraldbg.watch.waiting import MOST, FirstRecords


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(model: nn.Module, steps: int, bad: int | None = None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        inputs = torch.randn(16, 4)
        if bad is not None and step >= bad:
            inputs[0, 3] = float("nan")
        loss = (model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def lines(path: Path, kind: str) -> list[dict[str, object]]:
    return [line for text in path.read_text().splitlines() if (line := json.loads(text))["kind"] == kind]


def until(path: Path, text: str) -> None:
    """The sink's thread writes; wait until it has."""
    deadline = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{text} never came into {path.name}"
        time.sleep(0.02)


# --- near misses ----------------------------------------------------------------------------------------------------


def test_a_tracker_is_told_nothing_of_steps_that_wait(tmp_path: Path) -> None:
    sink = Memory()
    with NeuralDbg(model := net(), sinks=[sink], journal_dir=tmp_path) as dbg:
        train(model, 5, bad=2)
        assert dbg.journal is not None
        until(dbg.journal, '"place":3')
        assert not sink.events and not sink.series and not dbg.events
    assert sink.diagnosis is not None and [step for step, _ in sink.series["rate"]] == [0, 1, 2, 3, 4]


def test_a_loop_that_records_its_loss_has_no_step_that_waits(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, journal_dir=tmp_path) as dbg:
        for _ in range(5):
            loss = model(torch.randn(16, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    assert dbg.journal is not None and not lines(dbg.journal, "held") and len(lines(dbg.journal, "points")) == 5


@pytest.mark.parametrize("steps", [5, MOST, MOST + 4])
def test_what_was_handed_on_is_read_from_its_events_and_points(tmp_path: Path, steps: int) -> None:
    """Also without the diagnosis at the end, as after a kill."""
    with NeuralDbg(model := net(), journal_dir=tmp_path) as dbg:
        train(model, steps, bad=2)
    assert dbg.journal is not None and len(lines(dbg.journal, "held")) == min(steps, MOST)
    assert journal.read(dbg.journal).diagnosis == dbg.diagnose()
    whole = dbg.journal.read_text().splitlines(keepends=True)
    dbg.journal.write_text("".join(whole[:-1]))
    reading = journal.read(dbg.journal)
    assert reading.diagnosis is None and not reading.held and reading.steps == steps
    assert reading.events == tuple(dbg.events)


def test_steps_that_were_parts_of_the_first_one_are_that_step_in_the_end(tmp_path: Path) -> None:
    with NeuralDbg(model := net(), journal_dir=tmp_path) as dbg:
        train(model, 4)
        dbg.record_loss(1.0)
        assert dbg.journal is not None
        until(dbg.journal, '"kind":"points"')
    broken = dbg.journal.read_text().splitlines(keepends=True)[:-1]
    dbg.journal.write_text("".join(broken))
    reading = journal.read(dbg.journal)
    assert len(lines(dbg.journal, "held")) == 3 and not reading.held and reading.steps == 1


def test_they_take_at_most_an_eighth_of_the_journals_size(tmp_path: Path) -> None:
    sink = Journal(tmp_path / "j.jsonl", max_mb=0.01)
    sink.open(RunFacts())
    large = record(0, layers={f"layer{k}": layer_stats() for k in range(10)})
    for place in range(MOST):
        sink.held(place, dataclasses.replace(large, step=place), RunFacts())
    for step in range(MOST):
        sink.points(step, {"loss": 1.0})
    kept = lines(sink.path, "held")
    assert sum(len(json.dumps(line)) for line in kept) < 1250
    assert len(lines(sink.path, "points")) == MOST and journal.read(sink.path).steps == MOST


# --- what a process that was killed leaves --------------------------------------------------------------------------


def test_a_session_that_breaks_off_while_they_wait_is_explained_as_the_live_one(tmp_path: Path) -> None:
    with NeuralDbg(model := net(), journal_dir=tmp_path) as dbg:
        train(model, 6, bad=2)
        assert dbg.journal is not None
        until(dbg.journal, '"place":4')
        broken = journal.read(dbg.journal)
        found = journal.rebuild(dbg.journal)
    live = dbg.diagnose()
    assert found.verdict is Verdict.FAILED and found.top is not None and live.top is not None
    assert (found.top.cause, found.top.step, found.steps) == ("nan_in_input", 2, 5)
    assert (found.top.description, found.top.confidence) == (live.top.description, live.top.confidence)
    assert found.facts.coverage.steps == found.facts.coverage.steps_sampled == len(broken.held) == 5
    for name, points in found.series.items():
        assert points == tuple(p for p in live.series[name] if p[0] < 5)
        assert broken.series[name].points == points


def test_one_that_breaks_off_while_they_are_handed_on_loses_none(tmp_path: Path) -> None:
    with NeuralDbg(model := net(), journal_dir=tmp_path) as dbg:
        train(model, 6, bad=2)
    assert dbg.journal is not None
    text = dbg.journal.read_text().splitlines(keepends=True)
    second = [k for k, line in enumerate(text) if '"kind":"points"' in line][1]
    dbg.journal.write_text("".join(text[: second + 1]))
    reading = journal.read(dbg.journal)
    assert reading.steps == 6 and [e.step for e in reading.events] == [e.step for e in dbg.events]


def test_a_look_at_the_diagnosis_meanwhile_changes_nothing_of_that(tmp_path: Path) -> None:
    """It hands on what waits; what comes after it waits again."""
    with NeuralDbg(model := net(), journal_dir=tmp_path) as dbg:
        train(model, 3)
        dbg.diagnose()
        train(model, 4, bad=1)
        assert dbg.journal is not None
        until(dbg.journal, '"place":5')
        found = journal.rebuild(dbg.journal)
    assert found.top is not None and (found.top.cause, found.top.step, found.steps) == ("nan_in_input", 4, 6)


def test_a_model_that_leaves_is_gone_from_what_waits_and_the_names_are_those_of_the_one_that_stays() -> None:
    told: list[tuple[int, StepRecord, RunFacts]] = []
    waiting = FirstRecords(lambda *held: told.append(held))
    before, after = RunFacts(models=("gen", "disc")), RunFacts(models=("gen",))
    for step in range(2):
        waiting.add(record(step, layers={"gen.0": layer_stats(), "disc.0": layer_stats()}), before)
    waiting.change(lambda r: dataclasses.replace(r, layers={"0": r.layers["gen.0"]}), after)
    assert [(place, tuple(r.layers), facts.models) for place, r, facts in told[2:]] == [
        (0, ("0",), ("gen",)),
        (1, ("0",), ("gen",)),
    ]
    assert [tuple(r.layers) for r in waiting.take()] == [("0",), ("0",)]
    waiting.add(record(2), after)
    assert told[-1][0] == 2


def test_one_of_the_same_place_replaces_it_in_the_journal(tmp_path: Path) -> None:
    sink = Journal(tmp_path / "j.jsonl")
    sink.open(RunFacts(models=("gen", "disc")))
    sink.held(0, record(0, parameters={"gen.w": parameter_stats()}), RunFacts(models=("gen", "disc")))
    sink.held(0, record(0, loss=2.0, parameters={"w": parameter_stats()}), RunFacts(models=("gen",)))
    reading = journal.read(sink.path)
    assert [tuple(r.parameters) for r in reading.held] == [("w",)] and reading.facts.models == ("gen",)
    assert reading.series["loss"].points == ((0, 2.0),)
    sink.close(Diagnosis(Verdict.HEALTHY, 0.02, facts=RunFacts(coverage=Coverage(steps=1)), steps=1))
    assert not journal.read(sink.path).held and journal.rebuild(sink.path).verdict is Verdict.HEALTHY


KILLED = """
import os, sys, time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    inputs = torch.randn(16, 4)
    if step >= 3:
        inputs[0, 3] = float("nan")
    loss = (model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
    if step == 5:
        print("in step 5", flush=True)
        time.sleep(100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_script_that_is_killed_in_its_sixth_step_is_explained(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED)
    command = [sys.executable, "-m", "neuraldbg", "run", "--dir", "out", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "in step 5\n"
    until(tmp_path / "out" / "journal.jsonl", '"place":4')
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdout.close()
    done = subprocess.run(
        [sys.executable, "-m", "neuraldbg", "show", "out", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(done.stdout)
    top = told["hypotheses"][0]
    assert (told["verdict"], told["steps"], top["cause"], top["step"]) == ("failed", 5, "nan_in_input", 3)
