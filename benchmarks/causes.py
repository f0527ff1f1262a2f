"""One labelled training of a cause, watched, and what is said of it.

python -m benchmarks.causes nan_in_input   trains one of the corpus and prints its verdict
python -m benchmarks.causes --write        one of each cause, into benchmarks/causes.json for the pages of the site
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import corpus
from neuraldbg import NeuralDbg
from neuraldbg.diagnosis import Diagnosis
from neuraldbg.reasoning.discovery import rules

KEPT = Path(__file__).with_name("causes.json")
TRIES = 3  # trainings of a cause that are looked at before a wrong answer is what its page shows


def trainings(cause: str) -> list[corpus.Job]:
    """The corpus' trainings that fail of this cause alone, those from other programs than the test split's first."""
    found = [job for job in corpus.runs(kind="faulty") if job.label.causes[0] == cause and "+" not in str(job.fault)]
    return sorted(found, key=lambda job: (job.split == "test", job.seed, job.program))


def spread(jobs: Sequence[corpus.Job], count: int = TRIES) -> list[corpus.Job]:
    """At most so many of them, each of another program where there are as many."""
    first = {job.program: job for job in reversed(jobs)}
    other = [job for job in jobs if job not in first.values()]
    return [*sorted(first.values(), key=jobs.index), *other][:count]


def watched(job: corpus.Job) -> Diagnosis:
    """Train it under NeuralDBG."""
    models, train = corpus.build(job)
    with NeuralDbg(models if len(models) > 1 else next(iter(models.values()))) as dbg:
        train(dbg.record_loss)
    return dbg.diagnose()


def shown(cause: str) -> dict[str, str] | None:
    """A training of the cause and its verdict: the first that is answered right, else the first; None without one."""
    out: dict[str, str] | None = None
    for job in spread(trainings(cause)):
        diagnosis = watched(job)
        right = diagnosis.top is not None and diagnosis.top.cause == cause
        if out is None or right:
            top = diagnosis.top
            out = {
                "training": job.name,
                "answer": top.cause if top else "",
                "failure": top.failure_type if top else "",
                "text": str(diagnosis),
            }
        if right:
            break
    return out


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Train one labelled training of a cause and print its verdict.")
    parser.add_argument("cause", nargs="?", help="a cause, as `neuraldbg explain` lists them")
    parser.add_argument("--write", action="store_true", help=f"one of each cause, into {KEPT.name}")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of the trainings' own, such as an unusual loss
    torch.set_num_threads(1)
    if given.write:
        found = {cause: told for cause, _ in rules() if (told := shown(cause)) is not None}
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        wrong = [cause for cause, told in found.items() if told["answer"] != cause]
        print(f"wrote {KEPT.name}: {len(found)} causes; not named: {', '.join(wrong) or 'none'}")
        return 0
    told = shown(given.cause) if given.cause else None
    if told is None:
        known = sorted({job.label.causes[0] for job in corpus.runs(kind="faulty")})
        print(f"no training of {given.cause!r}; there is one of each of: {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"{told['training']}\n{told['text']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
