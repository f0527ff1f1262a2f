"""The watching side of `neuraldbg run`, once torch is there: sessions, their folder, and what is told of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from neuraldbg import sinks
from neuraldbg.diagnosis import Diagnosis
from neuraldbg.failure import TrainingFailed
from neuraldbg.launch import say
from neuraldbg.report.text import headline, rich_report, word
from neuraldbg.runfolder import FolderSink, RunFolder
from neuraldbg.settings import make
from neuraldbg.switch import strict
from neuraldbg.watch import discover

RUN = ("neuraldbg run",)  # the one tracked run of this process, for `discover`
SHOWN = 3  # verdicts printed in full; of many trainings in one process the others get a line
UNSEEN: Mapping[str, object] = {
    "nothing_seen": "no optimizer of torch.optim made a step",
    "folder": None,
    "sessions": [],
}
BAD: Mapping[str | None, tuple[str, ...]] = {"failed": ("failed",), "warning": ("failed", "warning"), None: ()}


class Watch:
    """Watches what optimizers train, from now on; every session of the process is written into the folder."""

    def __init__(self, folder: str, command: Mapping[str, object]) -> None:
        rank = os.environ.get("RANK", "")
        self._folder = RunFolder(Path(folder), command, f"-rank{rank}" if rank else "")
        self._diagnoses: list[Diagnosis] = []
        self._raised: Diagnosis | None = None  # Python's traceback tells it, in full
        sinks.add_factory(self._sink)
        discover.enable(_active, _nothing)

    def _sink(self) -> FolderSink:
        return FolderSink(self._folder, make().journal_mb, self._diagnoses.append)

    def end(self, error: BaseException | None = None) -> None:
        """The script is over, by this exception if there is one: sessions end and tell the folder."""
        if isinstance(error, TrainingFailed) and sys.excepthook is sys.__excepthook__:
            self._raised = error.diagnosis
        try:
            if error is not None:
                discover.run_ending(RUN[0], (type(error), error, error.__traceback__))
            discover.finish_all()
        except Exception as ours:
            if strict():
                raise
            say(f"the report is not complete, by an error of NeuralDBG: {ours!r}")

    def is_failed(self, fail_on: str | None) -> bool:
        """Whether a verdict is one that a failing exit code was asked for."""
        return any(str(d.verdict) in BAD[fail_on] for d in self._diagnoses)

    def tell(self, as_json: bool) -> None:
        """The verdicts, on stderr."""
        folder = str(self._folder.path)
        if as_json:
            from neuraldbg.report.json import to_dict

            told = {"folder": folder, "sessions": [to_dict(d) for d in self._diagnoses]} if self._diagnoses else UNSEEN
            print(json.dumps(told, allow_nan=False), file=sys.stderr)
            return
        if not self._diagnoses:
            say(f"no training was seen: {UNSEEN['nothing_seen']}")
            return
        console = Console(stderr=True)
        untold = [d for d in self._diagnoses if d is not self._raised]
        for diagnosis in untold[:SHOWN]:
            console.print(rich_report(diagnosis))
        for diagnosis in untold[SHOWN:]:
            line = f"{word(diagnosis).upper()}: {headline(diagnosis)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        say(f"report and journal are in {folder}")


def _active() -> tuple[str, ...]:
    return RUN


def _nothing() -> None:
    """Called after each optimizer step."""
