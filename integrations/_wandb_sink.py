"""`WandbSink`: a session's findings into the user's W&B run, on disk before they go anywhere."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuraldbg import journal
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.journal import Journal
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.sinks import Lane, Undelivered

from . import _spool as spool
from . import _wandb_content as content
from ._content import because, is_empty, reports
from ._following import is_helper, refuse_seconds
from ._wandb_contact import Contact, Slow, active

JOURNAL = "neuraldbg.wandb.jsonl"
MARGIN = 0.5  # seconds of close_timeout kept for what is not network
LEAST = 0.1  # seconds that table and artifact get in any case
BETWEEN_POINTS = 1.0  # seconds between two points of ours in the history; W&B keeps one value a key and row anyway


class _Told:
    """What the sessions in one run have told so far; shared by their sinks, which close on threads of their own.

    sessions: how many there were, those before a resume included; worst: of this process alone.
    """

    def __init__(self, sessions: int) -> None:
        self.lock = threading.Lock()
        self.sessions = sessions
        self.worst: Diagnosis | None = None


_told: weakref.WeakKeyDictionary[Any, _Told] = weakref.WeakKeyDictionary()
_told_lock = threading.Lock()


class WandbSink:
    """Writes into `run`, or into the run that is active when the training begins; it makes no run and finishes none.

    silent: no warnings. log_history: event counts as history points, which join the user's rows. log_summary,
    log_config, log_tags: the verdict as columns, as a value to group by, and as tags. log_graph: the causal graph
    (in the history; in the summary with log_history=False). log_files: the report in the run's files.
    log_artifacts: the table of hypotheses and the report as an artifact. alert: W&B's own alert at the first value
    that is not finite, and at the end if the training failed. close_timeout: seconds that the end of a session may
    take. spool_dir: where a session without a run leaves its report (`.neuraldbg/wandb` here, by default).
    Raises TypeError for what is no W&B run, ValueError for a close_timeout that is not positive.
    """

    def __init__(
        self,
        run: Any | None = None,
        *,
        silent: bool = False,
        log_history: bool = True,
        log_summary: bool = True,
        log_config: bool = True,
        log_tags: bool = True,
        log_graph: bool = True,
        log_files: bool = True,
        log_artifacts: bool = True,
        alert: bool = False,
        close_timeout: float = 10.0,
        spool_dir: Path | str | None = None,
    ) -> None:
        check(run=run, close_timeout=close_timeout)
        self.silent = silent
        self.close_timeout = close_timeout
        self._log_history, self._log_summary, self._log_config = log_history, log_summary, log_config
        self._log_tags, self._log_graph, self._log_files = log_tags, log_graph, log_files
        self._log_artifacts, self._alert = log_artifacts, alert
        self._spool_dir = spool_dir
        self._run = run
        self._contact: Contact | None = None
        self._facts = RunFacts()
        self._folder: Path | None = None
        self._number = 0
        self._journal: Journal | None = None
        self._tally = content.Tally()
        self._due = 0.0
        self._first: SemanticEvent | None = None
        self._alerted = False
        self._slow = Slow()
        self._lane: Lane | None = None
        self._ending = threading.Event()  # the run ends before the session
        self._settled = threading.Event()  # nothing more is to come, or all that is known was told
        self._early: Diagnosis | None = None

    def bind(self) -> bool:
        """Take the active run, once there is one."""
        if self._run is None:
            self._run = active()
        return self._run is not None

    @property
    def run(self) -> Any | None:
        """The run that the findings go to, once it is known."""
        return self._run

    def open(self, facts: RunFacts) -> None:
        """A session started; nothing is written before it sees a step, for not every session will."""
        self._lane = Lane(self._slow)  # now, for at the interpreter's exit no thread can be started any more
        weakref.finalize(self, self._lane.stop).atexit = False
        self._facts = facts

    @property
    def _is_off(self) -> bool:
        """A run in mode "disabled" takes everything and keeps nothing: its user wants no tracking now."""
        return self._run is not None and bool(self._run.disabled)

    def _begin(self) -> None:
        """At the first finding: the journal, and the run once it is known."""
        if self._is_off:
            return
        if self._contact is None and self._run is not None:
            self._contact = Contact(self._run)
            before = self._contact.told_before()
            with _told_lock:
                told = _told.setdefault(self._run, _Told(before))
                told.sessions += 1
                self._number = told.sessions
            self._contact.greet()
            if self._log_summary and told.worst is None:
                self._contact.summary({"neuraldbg_verdict": str(Verdict.RUNNING)})
                if before:
                    self._contact.forget((*content.OF_A_FAILURE, *content.OF_EVENTS, content.TABLE))
        if self._journal is None:
            self._folder = self._contact.beside if self._contact else spool.make(self._spool_dir, "wandb")
            self._journal = Journal(self._folder / (f"{self._number}-{JOURNAL}" if self._contact else JOURNAL))
            self._journal.open(self._facts)

    def facts(self, update: RunFacts) -> None:
        self._facts = update
        if self._journal is not None:
            self._journal.facts(update)

    def event(self, event: SemanticEvent) -> None:
        self._begin()
        if self._journal is None:
            return
        self._journal.event(event)
        self._tally.add(event)
        if self._first is None and not event.is_recovery:
            self._first = event
            if self._contact is not None and self._log_summary:
                self._contact.summary(content.first_event(event))
        if self._alert and not self._alerted and self._contact is not None and content.severity(event) > 1:
            self._alerted = True
            self._contact.alert(*content.event_alert(event), "ERROR")
        self._flush()

    def points(self, step: int, values: Mapping[str, float]) -> None:
        self._begin()
        if self._journal is not None:
            self._journal.points(step, values)

    def held(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        self._begin()
        if self._journal is not None:
            self._journal.held(place, record, facts)

    def idle(self) -> None:
        """Nothing waits: tell what gathered, and, where the run is about to end before the session, all of it."""
        self._flush()
        if self._ending.is_set() and not self._settled.is_set():
            try:
                if self._journal is not None and self._contact is not None:
                    self._early = journal.rebuild(self._journal.path)
                    self._tell(self._early, time.monotonic())
            finally:
                self._settled.set()

    def _flush(self, *, now: bool = False) -> None:
        if self._contact is None or not self._log_history or not self._tally.changed:
            return
        if now or time.monotonic() >= self._due:
            self._contact.history(self._tally.take())
            self._due = time.monotonic() + BETWEEN_POINTS

    def run_ending(self, run_id: str) -> None:
        """The run ends now though the session goes on: what is known goes there, within close_timeout."""
        if self._contact is not None and self._contact.id == run_id and not self._settled.is_set():
            self._ending.set()
            self._settled.wait(self.close_timeout)

    def close(self, diagnosis: Diagnosis) -> None:
        try:
            self._close(diagnosis, time.monotonic())
        finally:
            self._settled.set()

    def _close(self, diagnosis: Diagnosis, start: float) -> None:
        unwanted = self._is_off or (self._run is None and is_helper())
        if self._lane is None or is_empty(diagnosis) or unwanted:
            self._discard()
            return
        self._begin()
        assert self._folder is not None and self._journal is not None
        self._journal.close(diagnosis)
        if self._contact is None:
            spool.write_files(self._folder, reports(diagnosis))
            raise Undelivered("no W&B run was active while it trained; call wandb.init() before the training")
        if self._early is not None:
            self._add(self._early, diagnosis)
        else:
            self._tell(diagnosis, start)
        self._discard()

    def _add(self, early: Diagnosis, diagnosis: Diagnosis) -> None:
        """The run has what was known at its end; what came after stays beside it."""
        assert self._contact is not None
        folder = self._report_folder(self._contact)
        spool.write_files(folder, reports(diagnosis))
        if content.claim(early) != content.claim(diagnosis):
            raise Undelivered(
                f"W&B run {self._contact.id} ended before the session; the run says {early.verdict}, the diagnosis of "
                f"the whole session is in {folder}: neuraldbg show {folder / 'diagnosis.json'}"
            )

    def _report_folder(self, contact: Contact) -> Path:
        folder = contact.files / content.FOLDER
        return folder if self._number == 1 else folder / f"session-{self._number}"

    def _tell(self, diagnosis: Diagnosis, start: float) -> None:
        """Everything into the run: the files first, for they lie on disk whatever happens to the run."""
        contact = self._contact
        assert contact is not None and self._lane is not None
        folder = self._report_folder(contact)
        spool.write_files(folder, reports(diagnosis))
        told = _told[contact.run]
        with told.lock:
            told.worst = content.worst([*([told.worst] if told.worst else []), diagnosis])
            worst = told.worst
        self._flush(now=True)
        if self._log_files:
            contact.save(folder)
        if self._log_summary:
            columns = content.columns(worst, told.sessions)
            contact.summary(columns)
            contact.forget(name for name in content.OF_A_FAILURE if name not in columns)
        if self._log_config:
            contact.config(content.config(worst))
        if self._log_tags:
            contact.tags(content.tags(worst))
        if self._alert and diagnosis.verdict is Verdict.FAILED:
            contact.alert(content.alert_title(diagnosis), content.alert_text(diagnosis), "ERROR")
        page = content.graph_page(diagnosis) if self._log_graph else ""
        if page:
            contact.graph(page, max(diagnosis.steps - 1, 0), in_history=self._log_history)
        if contact.error is not None:
            self._slow.contact = None
            self._lane.finish(diagnosis)
            raise Undelivered(self._lost(folder, contact.error))
        if self._log_artifacts:
            self._slow.contact, self._slow.folder, self._slow.with_table = contact, folder, worst is diagnosis
            self._lane.finish(diagnosis)
            self._lane.ended(max(LEAST, self.close_timeout - MARGIN - (time.monotonic() - start)))
            if not self._slow.delivered:
                raise Undelivered(self._late(folder))

    def _discard(self) -> None:
        if self._lane is not None:
            self._lane.stop()
        if self._journal is not None and self._folder is not None:
            self._journal.path.unlink(missing_ok=True)
            spool.remove_empty(self._folder)

    @property
    def advice(self) -> str:
        """Where the session without a run is kept."""
        if self._folder is None or self._contact is not None:
            return ""
        return f"the report is in {self._folder}; look at it with: neuraldbg show {self._folder / 'diagnosis.json'}"

    def _lost(self, folder: Path, error: Exception) -> str:
        return (
            f"W&B run {self._contact.id if self._contact else ''} did not take all of the diagnosis{because(error)}; "
            f"it is kept in {folder}: neuraldbg show {folder / 'diagnosis.json'}"
        )

    def _late(self, folder: Path) -> str:
        if self._slow.error is not None:
            what = f"did not take the table of hypotheses and the artifact{because(self._slow.error)}"
        else:
            what = f"did not take the table of hypotheses and the artifact within {self.close_timeout:g} s"
        return f"W&B {what}; the same is in the run's columns and files, and in {folder}"


def check(*, run: Any | None, close_timeout: float) -> None:
    """Refuse values that would only fail later, on a worker, out of the user's sight."""
    if run is not None and not all(hasattr(run, name) for name in ("log", "summary", "config", "tags", "dir")):
        raise TypeError(f"run={run!r} is no W&B run; give what wandb.init() returned, or None for the active one")
    refuse_seconds(close_timeout=close_timeout)
