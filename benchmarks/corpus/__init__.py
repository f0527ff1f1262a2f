"""A corpus of labelled trainings: base programs times switches times seeds.

    for job in runs("test", "faulty"):
        models, train = build(job)
        with NeuralDbg(models) as dbg:
            train(dbg.record_loss)
        ...compare dbg.diagnose() with job.label...

Which candidates are in it is frozen in accepted.json: faulty ones whose training suffers against the same program
and seed without the fault, healthy ones that reach their program's score. `python -m benchmarks.corpus.audit` makes
that file. The split into fit, check and test goes by base program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.corpus.faults import FAULTS
from benchmarks.corpus.healthy import VARIANTS
from benchmarks.corpus.plan import HEALTHY, Label, Options, Plan, Program, Record, Switch
from benchmarks.corpus.programs import PROGRAMS

__all__ = ["FAULTS", "HEALTHY", "PROGRAMS", "VARIANTS", "VERSION", "Job", "Label", "build", "evenly", "plan_of", "runs"]

VERSION = 2  # of programs, switches and seeds; figures of two versions cannot be compared
ACCEPTED = Path(__file__).with_name("accepted.json")


@dataclass(frozen=True)
class Job:
    """One run. `fault` is None for a healthy one, whose variant is `variant`; two faults are joined by "+"."""

    program: str
    fault: str | None
    strength: int
    seed: int
    label: Label
    variant: str = "plain"

    @property
    def name(self) -> str:
        return f"{self.program}/{self.fault or self.variant}.{self.strength}:{self.seed}"

    @property
    def split(self) -> str:
        return PROGRAMS[self.program].split


def switches(fault: str | None, variant: str) -> list[Switch]:
    """Those of a fault (several joined by "+"), or that of a healthy variant."""
    return [FAULTS[name] for name in fault.split("+")] if fault else [VARIANTS[variant]]


def plan_of(program: str, fault: str | None, strength: int, seed: int, variant: str = "plain") -> tuple[Plan, Label]:
    """The plan with its switches applied, and the label that they give it."""
    chosen = switches(fault, variant)
    options = Options(seed)
    for switch in chosen:
        level = min(strength, switch.levels - 1)
        changes: dict[str, Any] = dict(switch.options(level))
        changes["traits"] = options.traits | frozenset(changes.get("traits", ()))
        options = replace(options, **changes)
    plan = PROGRAMS[program].make(options)
    labels = [switch.apply(plan, min(strength, switch.levels - 1)) for switch in chosen]
    return plan, labels[0] if len(labels) == 1 else _joined(labels)


def _joined(labels: list[Label]) -> Label:
    """Of two faults at once either may be named; layers are graded only where both have some."""
    causes = tuple(c for label in labels for c in label.causes)
    failures = tuple(f for label in labels for f in label.failures)
    layers = tuple(n for label in labels for n in label.layers) if all(label.layers for label in labels) else ()
    spans = [label.onset for label in labels if label.onset]
    return Label(causes, failures, layers, (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else None)


def build(job: Job) -> tuple[dict[str, nn.Module], Callable[[Record], None]]:
    """(models to watch, train): a plain training that tells its loss."""
    plan, _ = plan_of(job.program, job.fault, job.strength, job.seed, job.variant)
    return plan.models, plan.train


def fitting(program: Program, faulty: bool) -> list[Switch]:
    """Faults, or healthy variants, that this program can have."""
    return [s for s in (FAULTS if faulty else VARIANTS).values() if s.fits(program)]


def _job(row: dict[str, Any]) -> Job:
    told = row["label"]
    onset = (told["onset"][0], told["onset"][1]) if told["onset"] else None
    label = Label(tuple(told["causes"]), tuple(told["failures"]), tuple(told["layers"]), onset)
    return Job(row["program"], row["fault"], row["strength"], row["seed"], label, row["variant"])


def evenly(jobs: list[Job], limit: int | None) -> list[Job]:
    """At most so many of them, spread over all."""
    count = len(jobs) if limit is None else min(limit, len(jobs))
    return [jobs[k * len(jobs) // count] for k in range(count)]


def runs(split: str | None = None, kind: str | None = None, limit: int | None = None) -> list[Job]:
    """The corpus' jobs, spread evenly where there is a limit. split: fit, check or test; kind: faulty or healthy.

    Raises ValueError for another split or kind.
    """
    if split not in (None, "fit", "check", "test"):
        raise ValueError(f"split {split!r} is unknown; use fit, check, test or None for all")
    if kind not in (None, "faulty", "healthy"):
        raise ValueError(f"kind {kind!r} is unknown; use faulty, healthy or None for both")
    jobs = [_job(row) for row in json.loads(ACCEPTED.read_text())["runs"]]
    found = [
        j
        for j in jobs
        if (split is None or j.split == split) and (kind is None or j.label.healthy == (kind == "healthy"))
    ]
    return evenly(found, limit)
