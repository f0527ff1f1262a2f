"""Several ranks of one training: which of them failed first, and whether the others had it from its gradient.

Every rank writes a journal of its own and nothing is exchanged while it trains, so all is said afterwards from the
journals. What a rank's events show up to its gradients is its own (they are read before they are averaged); what comes
with the update is everybody's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import Phase, SemanticEvent


@dataclass(frozen=True)
class RankRun:
    """One rank's diagnosis and the file that it was read from. ended: its session was closed, not cut off by a kill."""

    rank: int
    diagnosis: Diagnosis
    source: str = ""
    ended: bool = True

    @property
    def first(self) -> SemanticEvent | None:
        """The earliest evidence of its hypotheses."""
        found = [e for h in self.diagnosis.hypotheses for e in h.evidence if not e.is_recovery]
        return min(found, key=lambda e: e.order, default=None)


@dataclass(frozen=True)
class Merged:
    """What the ranks show together.

    first: the rank whose failure is the earliest by (step, phase), None where none failed. alike: ranks that show the
    same symptom at the same step, the first among them. later: rank -> step of those that failed after it. stopped:
    rank -> steps of those whose session was never closed. missing: ranks without a file.
    """

    world: int
    ranks: tuple[RankRun, ...]
    first: RankRun | None = None
    alike: tuple[int, ...] = ()
    later: Mapping[int, int] = field(default_factory=dict)
    stopped: Mapping[int, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()

    @property
    def local(self) -> bool:
        """Whether the failure is one rank's own: nobody else shows it before gradients are averaged."""
        event = self.first.first if self.first is not None else None
        return event is not None and len(self.alike) == 1 and event.phase < Phase.UPDATE


def rank_of(diagnosis: Diagnosis, name: str) -> int:
    """A session's rank, from its facts or from `-rank3` in its file's name.

    Raises ValueError where neither tells.
    """
    if diagnosis.facts.rank is not None:
        return diagnosis.facts.rank
    found = re.search(r"-rank(\d+)", name)
    if found is None:
        raise ValueError(f"{name} does not say which rank it is of; start the training with torchrun or set RANK")
    return int(found.group(1))


def merge(runs: Iterable[RankRun]) -> Merged:
    """Put the ranks of one training together.

    Raises ValueError for no rank, and for two files of one rank.
    """
    ranks = tuple(sorted(runs, key=lambda r: r.rank))
    if not ranks:
        raise ValueError("there is no rank to merge")
    for a, b in itertools.pairwise(ranks):
        if a.rank == b.rank:
            raise ValueError(f"{a.source} and {b.source} are both of rank {a.rank}; merge one training at a time")
    world = max([r.diagnosis.facts.world or 0 for r in ranks] + [ranks[-1].rank + 1])
    failed = [(e, r) for r in ranks if (e := r.first) is not None and r.diagnosis.hypotheses]
    first = min(failed, key=lambda pair: (pair[0].step, pair[0].phase, pair[1].rank), default=None)
    present = {r.rank for r in ranks}
    return Merged(
        world=world,
        ranks=ranks,
        first=first[1] if first else None,
        alike=tuple(r.rank for e, r in failed if first and _same(e, first[0])),
        later={r.rank: e.step for e, r in failed if first and not _same(e, first[0])},
        stopped={r.rank: r.diagnosis.steps for r in ranks if not r.ended},
        missing=tuple(n for n in range(world) if n not in present),
    )


def _same(a: SemanticEvent, b: SemanticEvent) -> bool:
    return (a.step, a.symptom) == (b.step, b.symptom)


def furthest(merged: Merged) -> int:
    """Steps of the rank that came furthest."""
    return max(r.diagnosis.steps for r in merged.ranks)


def load(files: Iterable[Path]) -> Merged:
    """The ranks of these diagnoses and journals. A session that saw no step counts for nothing.

    Raises ValueError as `rank_of` and `merge` do, and for a file that is neither.
    """
    from neuraldbg import journal
    from neuraldbg.runfolder import read

    runs = []
    for path in files:
        diagnosis = read(path)
        if diagnosis.steps or diagnosis.events:
            ended = path.suffix != ".jsonl" or journal.read(path).diagnosis is not None
            runs.append(RankRun(rank_of(diagnosis, path.name), diagnosis, path.name, ended))
    return merge(runs)
