"""The first records of a session, which wait until it is known how a step ends and which models take part.

What they turn out to be (steps, or parts of one) is only known later, so no detector and no tracker gets them yet. Who
keeps a journal is told of them at once all the same, for a process that is killed meanwhile can no longer say.
"""

from __future__ import annotations

from collections.abc import Callable

from neuraldbg.record import RunFacts, StepRecord

MOST = 16  # then what a step was so far is what it is

Hold = Callable[[int, StepRecord, RunFacts], None]
"""Told of a record that waits: its place among all that ever waited (0-based; told again, it replaces), the facts."""


class FirstRecords:
    """Those that wait now, in order."""

    def __init__(self, hold: Hold) -> None:
        self.records: list[StepRecord] = []
        self._hold = hold
        self._taken = 0

    def add(self, record: StepRecord, facts: RunFacts) -> None:
        self._hold(self._taken + len(self.records), record, facts)
        self.records.append(record)

    def take(self) -> list[StepRecord]:
        """All of them; from here on they are handed on, one by one."""
        records, self.records = self.records, []
        self._taken += len(records)
        return records

    def change(self, to: Callable[[StepRecord], StepRecord], facts: RunFacts) -> None:
        """They are other than was thought: a model left, and the names are those of the one that stays."""
        waiting, self.records = self.records, []
        for record in waiting:
            self.add(to(record), facts)
