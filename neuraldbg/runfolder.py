"""The folder that `neuraldbg run` leaves, and finding the sessions in any folder."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.journal import Journal, rebuild
from neuraldbg.record import RunFacts, StepRecord

COMMAND, JOURNAL, DIAGNOSIS, PAGE, REPORT = "run", "journal", "diagnosis", "neuraldbg", "report"


class RunFolder:
    """A folder for sessions; it is made when the first of them sees a step, and nothing in it is overwritten.

    command: what was run, kept beside each session. stem: put behind each file's name, so that ranks can share it.
    """

    def __init__(self, path: Path, command: Mapping[str, object], stem: str = "") -> None:
        self.path = path
        self.stem = stem
        self._command = command

    def next_stem(self) -> str:
        """What tells the files of one more session apart; its journal is made, empty."""
        self.path.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            stem = self.stem + (f"-{number}" if number > 1 else "")
            try:
                self.file(JOURNAL, stem, ".jsonl").open("x").close()
            except FileExistsError:
                continue
            break
        command = json.dumps(self._command, indent=1)
        self.file(COMMAND, stem, ".json").write_text(command, encoding="utf-8")
        return stem

    def file(self, name: str, stem: str, suffix: str) -> Path:
        return self.path / f"{name}{stem}{suffix}"


class FolderSink:
    """A sink that writes a session's journal into a folder and, at the end, its reports beside it.

    told: given the Diagnosis before anything is written, on the sink's thread.
    """

    def __init__(self, folder: RunFolder, max_mb: float, told: Callable[[Diagnosis], None]) -> None:
        self._folder = folder
        self._max_mb = max_mb
        self._told = told
        self._facts = RunFacts()
        self._journal: Journal | None = None
        self._stem = ""

    @property
    def advice(self) -> str:
        """What to do where nothing could be written; Lightning's callback and users make such sinks too."""
        return f"it writes into {self._folder.path}: give a folder that can be written (`neuraldbg run --dir DIR`)"

    def open(self, facts: RunFacts) -> None:
        self._facts = facts

    def _begun(self) -> Journal:
        if self._journal is None:
            self._stem = self._folder.next_stem()
            self._journal = Journal(self._folder.file(JOURNAL, self._stem, ".jsonl"), max_mb=self._max_mb)
            self._journal.open(self._facts)
        return self._journal

    def facts(self, update: RunFacts) -> None:
        self._facts = update
        if self._journal is not None:
            self._journal.facts(update)

    def event(self, event: SemanticEvent) -> None:
        self._begun().event(event)

    def points(self, step: int, values: Mapping[str, float]) -> None:
        self._begun().points(step, values)

    def held(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        self._begun().held(place, record, facts)

    def close(self, diagnosis: Diagnosis) -> None:
        if not diagnosis.steps and not diagnosis.events and not diagnosis.facts.exception:
            return  # an optimizer that was made and never trained anything
        self._told(diagnosis)
        self._begun().close(diagnosis)
        from neuraldbg import report

        for name, suffix in ((DIAGNOSIS, ".json"), (PAGE, ".html"), (REPORT, ".md")):
            path = self._folder.file(name, self._stem, suffix)
            report.save(diagnosis, path.with_name(f".{path.name}")).replace(path)  # never half a file


def is_journal(path: Path) -> bool:
    """Whether a file begins as a journal of ours does."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = json.loads(file.readline(4096))
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and first.get("kind") == "header" and "schema_version" in first


def _is_diagnosis(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return '"schema_version"' in file.read(200)
    except OSError:
        return False


def _files(top: Path) -> Iterator[Path]:
    """All files below, sorted; what begins with a dot is left out."""
    for folder, folders, names in os.walk(top):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=_natural)
        yield from (Path(folder) / name for name in sorted(names, key=_natural) if not name.startswith("."))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key under which journal comes before journal-2, and that before journal-10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"([0-9]+)", Path(name).stem)]


def sessions(top: Path) -> list[Path]:
    """The best file of each session below a folder: its diagnosis, else its journal; oldest name first."""
    out: list[Path] = []
    for path in _files(top):
        if path.name.startswith(DIAGNOSIS) and path.suffix == ".json":
            if _is_diagnosis(path):
                out.append(path)
        elif path.suffix == ".jsonl" and not _diagnosis_beside(path).exists() and is_journal(path):
            out.append(path)
    return out


def _diagnosis_beside(journal: Path) -> Path:
    return journal.with_name(DIAGNOSIS + journal.stem.removeprefix(JOURNAL) + ".json")


def journal_of(session: Path) -> Path | None:
    """The journal of a session's file, if it lies there."""
    if session.suffix == ".jsonl":
        return session
    path = session.with_name(JOURNAL + session.stem.removeprefix(DIAGNOSIS) + ".jsonl")
    return path if session.name.startswith(DIAGNOSIS) and is_journal(path) else None


def read(path: Path) -> Diagnosis:
    """The Diagnosis of a diagnosis.json, or of a journal (.jsonl), rebuilt where the process was killed.

    Raises ValueError for a file that is neither.
    """
    if path.suffix == ".jsonl":
        return rebuild(path)
    from neuraldbg.report.json import from_json

    return from_json(path.read_text(encoding="utf-8"))


def command_of(session: Path) -> Mapping[str, object]:
    """What was run for a session of `neuraldbg run`, as its run.json says; empty without one."""
    stem = session.stem.removeprefix(JOURNAL).removeprefix(DIAGNOSIS)
    try:
        found = json.loads(session.with_name(f"{COMMAND}{stem}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
