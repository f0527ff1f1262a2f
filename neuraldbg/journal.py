"""The JSONL journal of a session: what is needed to rebuild its Diagnosis, also after the process was killed.

One JSON object a line, written and flushed at once: a header, the facts (after the first time only fields that
changed), the events, the series, and at the end the Diagnosis itself. A last line that was cut is not read.

The first steps of a session wait until it is known what they are (`watch/waiting.py`). They are written as they are, a
line each, and again as events and points once they are handed on; what was not by then is read from those lines.
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from neuraldbg.codec import decode, encode
from neuraldbg.diagnosis import SCHEMA_VERSION, Diagnosis
from neuraldbg.events import SemanticEvent
from neuraldbg.record import LossStats, RunFacts, StepRecord
from neuraldbg.run import Run, Series, ordered
from neuraldbg.settings import Settings, make
from neuraldbg.trace import Trace

HELD_SHARE = 8  # of the size limit an eighth at most: what comes after the first steps needs its place too
FULL = "what came after the journal was full (journal_mb); it has no end, which would tell of the rest"
DENSE_POINTS = 4096  # steps written one by one; from then on half as many after each further 4096 lines


class Journal:
    """A sink that appends to `path`; its folder is made. At most `max_mb`, the Diagnosis excepted."""

    def __init__(self, path: Path | str, *, max_mb: float = 64.0) -> None:
        self.path = Path(path)
        self._left = int(max_mb * 1e6)
        self._left_for_held = self._left // HELD_SHARE
        self._file: IO[str] | None = None
        self._facts: dict[str, Any] = {}
        self._full = False
        self._stride = 1
        self._points = 0

    def open(self, facts: RunFacts) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        weakref.finalize(self, self._file.close)  # a session that is dropped leaves no open file
        self._write({"kind": "header", "schema_version": SCHEMA_VERSION, "started": time.time()})
        self.facts(facts)

    def facts(self, update: RunFacts) -> None:
        plain = encode(update)
        changed = {k: v for k, v in plain.items() if k not in self._facts or self._facts[k] != v}
        if changed:
            self._facts = plain
            self._write({"kind": "facts", "value": changed})

    def event(self, event: SemanticEvent) -> None:
        self._write({"kind": "event", "value": encode(event)})

    def points(self, step: int, values: Mapping[str, float]) -> None:
        if step % self._stride:
            return
        self._write({"kind": "points", "step": step, "value": encode(values)})
        self._points += 1
        if self._points % DENSE_POINTS == 0:
            self._stride *= 2

    def held(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        """A step that waits; one of the same place replaces it. Past their share of the limit no more are written."""
        self.facts(facts)
        if self._left_for_held:
            text = _line({"kind": "held", "place": place, "value": encode(record)})
            self._left_for_held = max(0, self._left_for_held - len(text))
            if self._left_for_held:
                self._append(text)

    def close(self, diagnosis: Diagnosis) -> None:
        self._write({"kind": "diagnosis", "value": encode(diagnosis)}, always=True)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any], *, always: bool = False) -> None:
        self._append(_line(line), always=always)

    def _append(self, text: str, *, always: bool = False) -> None:
        if self._file is None or (self._full and not always):
            return
        if not always and len(text) > self._left:
            self._full = True
            text = json.dumps({"kind": "truncated"}) + "\n"
        self._left -= len(text)  # ASCII: characters are bytes
        self._file.write(text)
        self._file.flush()


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"


@dataclass(frozen=True)
class Reading:
    """What a journal holds. `truncated`: it reached its size limit; `diagnosis` is None if the session did not end.

    held: the first steps, where the session broke off before all of them were handed on; events and series are theirs.
    """

    facts: RunFacts = field(default_factory=RunFacts)
    events: tuple[SemanticEvent, ...] = ()
    series: Mapping[str, Series] = field(default_factory=dict)
    steps: int = 0
    diagnosis: Diagnosis | None = None
    truncated: bool = False
    held: tuple[StepRecord, ...] = ()

    @property
    def run(self) -> Run:
        """The run as rules see it; a journal that broke off tells of a run that is over."""
        return Run(
            events=ordered(self.events), facts=self.facts, series=dict(self.series), steps=self.steps, finished=True
        )


def read(path: Path | str) -> Reading:
    """The contents of a journal; ValueError if it is none, or of a newer version."""
    lines = _lines(Path(path))
    header = next(lines, {})
    if header.get("kind") != "header" or not isinstance(header.get("schema_version"), int):
        raise ValueError(f"{path} is not a journal of NeuralDBG: its first line is no header")
    if header["schema_version"] > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {header['schema_version']}, this NeuralDBG reads up to {SCHEMA_VERSION}; "
            "upgrade with: pip install -U neuraldbg"
        )
    facts: dict[str, Any] = {}
    events: list[SemanticEvent] = []
    points: dict[str, list[tuple[int, float]]] = {}
    diagnosis: Diagnosis | None = None
    held: dict[int, StepRecord] = {}
    truncated = False
    last_step, handed_on = -1, 0
    for line in lines:
        match line.get("kind"):
            case "facts":
                facts.update(line["value"])
            case "event":
                events.append(decode(SemanticEvent, line["value"]))
                last_step = max(last_step, events[-1].step)
            case "held":
                held[line["place"]] = decode(StepRecord, line["value"])
            case "points":
                handed_on += 1
                last_step = max(last_step, line["step"])
                for name, value in decode(dict[str, float], line["value"]).items():
                    points.setdefault(name, []).append((line["step"], value))
            case "diagnosis":
                diagnosis = decode(Diagnosis, line["value"])
            case "truncated":
                truncated = True
            case _:  # a kind that a newer version added within this schema
                continue
    known = decode(RunFacts, facts)
    if truncated and diagnosis is None:
        known = replace(known, coverage=replace(known.coverage, notes=(*known.coverage.notes, FULL)))
    if diagnosis is None and handed_on < len(held):
        return _of_held(tuple(held.values()), known, truncated)
    return Reading(
        facts=known,
        events=tuple(events),
        series={name: Series(tuple(values)) for name, values in points.items()},
        steps=max(last_step + 1, known.coverage.steps),
        diagnosis=diagnosis,
        truncated=truncated,
    )


def _of_held(held: tuple[StepRecord, ...], known: RunFacts, truncated: bool) -> Reading:
    seen = replace(known.coverage, steps=len(held), steps_sampled=sum(record.sampled for record in held))
    facts = replace(known, coverage=seen)  # facts are told now and then, and the coverage is of that time
    run = _trace(held, facts, make()).run(True, facts)
    return Reading(facts=facts, events=run.events, series=run.series, steps=run.steps, truncated=truncated, held=held)


def _trace(held: Iterable[StepRecord], facts: RunFacts, settings: Settings) -> Trace:
    """The steps that waited, handed on now."""
    from neuraldbg.reasoning import detectors

    trace = Trace(settings, detectors())
    for record in held:
        trace.feed(record, facts)
    return trace


def rebuild(path: Path | str) -> Diagnosis:
    """The Diagnosis of a journal: the one it ends with, or, after a kill, the one its events and series give.

    Raises ValueError as `read` does.
    """
    reading = read(path)
    if reading.diagnosis is not None:
        return reading.diagnosis
    from neuraldbg.reasoning import detectors, diagnose  # all rules: only when they are needed

    settings, run = make(), reading.run
    if reading.held:
        return diagnose(_trace(reading.held, reading.facts, settings).run(True, reading.facts), settings)
    ending = [
        event
        for detector in detectors()
        if detector.finish is not None
        for event in detector.finish(_replayed(detector, run, settings), run.facts)
    ]
    return diagnose(replace(run, events=ordered((*run.events, *ending))), settings)


def _replayed(detector: Any, run: Run, settings: Settings) -> Any:
    """The state of a detector that speaks at the end, from the series that the journal kept."""
    state = detector.initial(settings)
    names = ("loss", "skill", "cosine", "gradient_norm")
    at: dict[int, dict[str, float]] = {}
    for name in names:
        for step, value in run.get(name).points:
            at.setdefault(step, {})[name] = value
    for step in sorted(at):
        known = at[step]
        loss = LossStats("", value=known["skill"], chance=1.0) if "skill" in known else None
        record = StepRecord(
            step,
            loss=known.get("loss"),
            loss_stats=loss,
            cosine=known.get("cosine"),
            gradient_norm=known.get("gradient_norm"),
        )
        state, _ = detector.step(state, record, run.facts)
    return state


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                if text.endswith("\n"):
                    raise ValueError(f"{path} is damaged: {text[:60]!r} is no JSON") from None
                return  # the process was killed while it wrote this line
            if not isinstance(line, dict):
                raise ValueError(f"{path} is not a journal of NeuralDBG: {text[:60]!r} is no object")
            yield line
