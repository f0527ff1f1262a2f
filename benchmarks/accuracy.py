"""How right the diagnoses are, on the labelled corpus: detection, cause, layer, onset, false alarms, calibration.

    python -m benchmarks.accuracy                       the whole corpus; writes docs/benchmarks/accuracy.md
    python -m benchmarks.accuracy --short               about 60 runs, in under two minutes
    python -m benchmarks.accuracy --split test --wrong  the wrong ones, each with label, answer and first events
    python -m benchmarks.accuracy --only gcn/jump       what its name has
    python -m benchmarks.accuracy --rows FILE           no training: the kept answers, with today's confidences

Every answer goes to benchmarks/out/accuracy.json as well.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import corpus
from benchmarks.accuracy_page import picture, table, written
from benchmarks.grading import Answer, Row, as_json, from_json
from neuraldbg import NeuralDbg
from neuraldbg.reasoning.calibration import Calibration, load

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "out" / "accuracy.json"
PAGE = ROOT / "docs" / "benchmarks" / "accuracy.md"
PICTURE = ROOT / "docs" / "images" / "reliability.svg"
SHORT = 30  # faulty and healthy runs each
EVENTS = 8  # of a wrong run that are shown


def run(job: corpus.Job) -> Row:
    """Train one job watched and keep what is said of it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    label, error = job.label, None
    late = bool(job.fault) and any(corpus.FAULTS[f].late for f in str(job.fault).split("+"))
    verdict = "none"
    answers: tuple[Answer, ...] = ()
    events: tuple[str, ...] = ()
    try:
        models, train = corpus.build(job)
        with NeuralDbg(models if len(models) > 1 else next(iter(models.values()))) as dbg:
            train(dbg.record_loss)
        verdict = str(dbg.diagnose().verdict)
        answers = tuple(
            Answer(h.cause, str(h.failure_type), h.layer_name, h.step, h.confidence, h.metadata["score"])
            for h in dbg.explain_failure()
        )
        events = tuple(f"{e.symptom}@{e.layer_name}:{e.step}" for e in dbg.events if not e.is_recovery)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    return Row(
        job.name,
        job.split,
        job.fault or job.variant,
        label.causes,
        label.failures,
        label.layers,
        label.onset,
        verdict,
        answers,
        late,
        error,
        events,
    )


def chosen(args: argparse.Namespace) -> list[corpus.Job]:
    """The runs that the command line asks for, as many faulty as healthy ones where it asks for a part."""
    half = SHORT if args.short else args.limit
    split = None if args.split == "all" else args.split
    kinds = (args.kind,) if args.kind else ("faulty", "healthy")
    named = [[j for j in corpus.runs(split, kind) if args.only in j.name] for kind in kinds]
    return [job for jobs in named for job in corpus.evenly(jobs, half)]


def told(row: Row) -> str:
    """A wrong run in a few lines."""
    lines = [f"{row.name}  [{row.split}]  {' '.join(row.wrong)}"]
    if row.healthy:
        lines.append("    want healthy")
    else:
        places = ",".join(row.layers[:4])
        lines.append(f"    want {'|'.join(row.causes)} ({'|'.join(row.failures[:3])}) @{places} :{row.onset}")
    lines.append(f"    said {row.verdict}" + (f" ERROR {row.error}" if row.error else ""))
    lines += [f"      {a.confidence:.2f} {a.cause} ({a.failure}) @{a.layer}:{a.step}" for a in row.answers[:3]]
    lines.append(f"    events {' '.join(row.events[:EVENTS])}")
    return "\n".join(lines)


def measure(jobs: Sequence[corpus.Job], processes: int, wrong: bool = False) -> list[Row]:
    """All rows, in order; wrong ones are told as they come where that is asked for."""
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=50) as pool:
        rows = []
        for row in pool.imap(run, jobs, chunksize=1):
            rows.append(row)
            if wrong and row.wrong:
                print(told(row), flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(rows)} of {len(jobs)}", end="", file=sys.stderr)
        return rows


def recalibrated(data: dict[str, Any], calibration: Calibration) -> list[Row]:
    """Kept answers with the confidences that this calibration gives their scores, never rising down the list.

    Raises SystemExit for answers of another version of the corpus.
    """
    if data["version"] != corpus.VERSION:
        raise SystemExit(f"the rows are of corpus version {data['version']}, this is {corpus.VERSION}: train anew")
    rows = []
    for row in map(from_json, data["rows"]):
        ceiling, answers = 1.0, []
        for place, a in enumerate(row.answers):
            most = calibration.later if place else 1.0
            ceiling = min(ceiling, most, round(calibration.confidence(a.cause, a.score), 4))
            answers.append(replace(a, confidence=ceiling))
        rows.append(replace(row, answers=tuple(answers)))
    return rows


def publish(rows: Sequence[Row]) -> None:
    """The page and its picture."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(written(rows, corpus.VERSION))
    PICTURE.write_text(picture([r for r in rows if r.split == "test"]))
    print(f"written: {PAGE.relative_to(ROOT)}, {PICTURE.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="all", choices=("fit", "check", "test", "all"))
    parser.add_argument("--kind", choices=("faulty", "healthy"))
    parser.add_argument("--short", action="store_true", help="about 60 runs spread over the corpus")
    parser.add_argument("--limit", type=int, help="at most so many faulty and so many healthy runs")
    parser.add_argument("--only", default="", help="PROGRAM/FAULT or a part of it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--wrong", action="store_true", help="list each wrong run")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--rows", type=Path, help="answers of the whole corpus that an earlier call kept")
    args = parser.parse_args()
    if args.rows is not None:
        rows = recalibrated(json.loads(args.rows.read_text()), load())
        print(table(rows))
        publish(rows)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    jobs = chosen(args)
    if not jobs:
        raise SystemExit(f"no run of the corpus matches --only {args.only!r} in split {args.split!r}")
    start = time.perf_counter()
    rows = measure(jobs, args.jobs, args.wrong)
    print(table(rows))
    print(f"{len(rows)} runs in {time.perf_counter() - start:.0f} s")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"version": corpus.VERSION, "rows": [as_json(r) for r in rows]}, indent=1) + "\n")
    if args.split == "all" and not (args.short or args.limit or args.only or args.kind):
        publish(rows)


if __name__ == "__main__":
    main()
