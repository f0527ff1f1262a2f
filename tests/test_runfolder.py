"""A folder of sessions: nothing without a step, nothing overwritten, and what is said where it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.record import RunFacts
from neuraldbg.runfolder import FolderSink, RunFolder, command_of, journal_of, read, sessions
from neuraldbg.sinks import FanOut

HEALTHY = Diagnosis(Verdict.HEALTHY, 0.02, steps=9)


def session(folder: Path, diagnosis: Diagnosis = HEALTHY) -> list[Diagnosis]:
    """A session whose findings go into the folder; what was told of it."""
    told: list[Diagnosis] = []
    fanout = FanOut([FolderSink(RunFolder(folder, {"target": "train.py"}), 1.0, told.append)])
    fanout.open(RunFacts())
    fanout.close(diagnosis)
    return told


def test_a_session_that_saw_no_step_makes_no_folder(tmp_path: Path) -> None:
    assert session(tmp_path / "runs", Diagnosis(Verdict.WARNING, 0.0)) == []
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_is_used_again_keeps_what_is_there(tmp_path: Path) -> None:
    other = Diagnosis(Verdict.FAILED, 0.9, steps=4)
    assert session(tmp_path) + session(tmp_path, other) == [HEALTHY, other]
    first, second = sessions(tmp_path)
    assert (first.name, second.name) == ("diagnosis.json", "diagnosis-2.json")
    assert (read(first), read(second)) == (HEALTHY, other)
    assert journal_of(second) == tmp_path / "journal-2.jsonl"
    assert command_of(second) == {"target": "train.py"}


def test_where_nothing_can_be_written_the_warning_names_the_folder_and_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    session(blocked)
    assert f"it writes into {blocked}: give a folder that can be written" in caplog.text
    assert blocked.read_text() == "in the way"
