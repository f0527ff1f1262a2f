"""Trainings in, what they have in common out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from neuraldbg.sweep.rows import Row, rows_of
from neuraldbg.sweep.splits import FEWEST, SURE, Split, best_splits, candidates, unusable

DIAGNOSED = ("failed", "warning", "healthy")
MOST_SPLITS = 3
MOST_EXAMPLES = 5
ANY = "any failure"


@dataclass(frozen=True)
class CauseSummary:
    """A cause over all trainings.

    failed, warned: how many trainings it is the first hypothesis of. share: of all diagnosed ones. steps: first,
    median and last onset. layers: the commonest, with counts. splits: what separates these trainings from the
    others, best first, and no likelier by chance than 5 %; where there is none, `said` tells why. examples: the
    trainings to look at, the surest first.
    """

    cause: str
    failed: int
    warned: int
    share: float
    steps: tuple[int, float, int] | None = None
    layers: tuple[tuple[str, int], ...] = ()
    splits: tuple[Split, ...] = ()
    said: str = ""
    examples: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Which causes, how often, and what goes with each.

    rows: the diagnosed trainings. undiagnosed: how many had no diagnosis. verdicts: how many of each. overall: what
    separates the failed ones from the others, whatever the cause. causes: commonest first. parameters: those that
    were compared; left_out: the others, and why.
    """

    rows: tuple[Row, ...]
    undiagnosed: int = 0
    verdicts: Mapping[str, int] = field(default_factory=dict)
    overall: CauseSummary | None = None
    causes: tuple[CauseSummary, ...] = ()
    parameters: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = 1

    def __str__(self) -> str:
        from neuraldbg.report.sweep import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from neuraldbg.report.sweep_page import fragment

        return fragment(self)


def compare(*sources: str | Path | Iterable[Row]) -> Comparison:
    """Which causes the trainings of these sources have, and which hyper-parameters go with each.

    sources: files or folders of diagnoses and journals, a tracker's runs as "mlflow:EXPERIMENT" or
    "wandb:ENTITY/PROJECT", or rows.
    Raises LookupError for a source that is not there and ValueError for one that cannot be read.
    """
    rows = [row for source in sources for row in (rows_of(str(source)) if isinstance(source, (str, Path)) else source)]
    known = tuple(row for row in rows if row.verdict in DIAGNOSED)
    names = list(dict.fromkeys(name for row in known for name in row.parameters))
    left_out = {name: why for name in names if (why := unusable(known, name))}
    used = tuple(name for name in names if name not in left_out)
    tried = candidates(known, used)
    causes = Counter(row.cause for row in known if row.cause is not None)

    def summary(cause: str, chosen: list[bool]) -> CauseSummary:
        having = [row for row, is_chosen in zip(known, chosen, strict=True) if is_chosen]
        splits = best_splits(np.array(chosen, dtype=bool), tried)
        sure = [s for s in splits if s.p is not None and s.p <= SURE]
        steps = sorted(row.step for row in having if row.step is not None)
        layers = Counter(row.layer for row in having if row.layer is not None)
        return CauseSummary(
            cause=cause,
            failed=sum(row.verdict == "failed" for row in having),
            warned=sum(row.verdict == "warning" for row in having),
            share=len(having) / len(known),
            steps=(steps[0], float(statistics.median(steps)), steps[-1]) if steps else None,
            layers=tuple(layers.most_common(3)),
            splits=tuple(sure[:MOST_SPLITS]),
            said="" if sure else _why_none(len(having), len(known), splits),
            examples=tuple(sorted(having, key=lambda r: -(r.confidence or 0.0))[:MOST_EXAMPLES]),
        )

    failed = [row.verdict == "failed" for row in known]
    return Comparison(
        rows=known,
        undiagnosed=len(rows) - len(known),
        verdicts={v: sum(row.verdict == v for row in known) for v in DIAGNOSED},
        overall=summary(ANY, failed) if any(failed) else None,
        causes=tuple(summary(cause, [row.cause == cause for row in known]) for cause, _ in causes.most_common()),
        parameters=used,
        left_out=left_out,
    )


def _why_none(having: int, all_of_them: int, splits: list[Split]) -> str:
    if having == all_of_them:
        return "all trainings have it"
    if not splits:
        return "no hyper-parameter differs between the trainings"
    if min(having, all_of_them - having) < FEWEST:
        return f"too few runs to say: {having} with it, {all_of_them - having} without"
    best = splits[0]
    return f"no hyper-parameter separates it; the nearest, {best.condition}, is as good by chance (p = {best.p:.2f})"
