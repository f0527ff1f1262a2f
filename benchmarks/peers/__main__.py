"""Peers on the test split: detection, false alarms, kind of failure and cause, beside ours; docs/benchmarks/peers.md.

    python -m benchmarks.peers                 all peers on the whole test split, about an hour on two cores
    python -m benchmarks.peers --limit 100     at most so many faulty and so many healthy runs
    python -m benchmarks.peers --only gradsnitch    one tool anew; the others' rows stay as they were measured

Each peer is installed without its dependencies into a folder of its own (benchmarks/.venvs) and runs in processes of
its own, on the torch that ours runs on. One that cannot be installed is named in the page.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.grading import Share
from benchmarks.peers.adapters import PEERS

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT / "benchmarks" / ".venvs"
OUT = ROOT / "benchmarks" / "out" / "peers.json"
PAGE = ROOT / "docs" / "benchmarks" / "peers.md"
OURS = "NeuralDBG"

INTRO = """# Peers

Written by `make bench-peers` (`python -m benchmarks.peers`); do not edit.

All tools watch the same trainings: {faulty} faulty and {healthy} healthy runs of the corpus's test split (version
{version}; what it is stands in [accuracy](accuracy.md)), {how}. Each has its defaults and is called where its own page
says. *Serious*: what the tool itself grades as its highest severity; *any*: a warning counts too. A kind of failure or
a cause is right if the tool's first serious finding (else its first one) names it; its words were mapped to ours in
`benchmarks/peers/adapters.py`. *Broke*: trainings that its hooks made raise. Intervals are exact, 95 %.
"""


def chosen(limit: int | None) -> list[corpus.Job]:
    return [*corpus.runs("test", "faulty", limit), *corpus.runs("test", "healthy", limit)]


def run(name: str, job: corpus.Job) -> dict[str, Any]:
    """One training watched by one tool."""
    import torch

    from benchmarks.peers.harness import peer_says

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        said, error = ours_says(job) if name == OURS else peer_says(PEERS[name].adapter, job, Path(folder))
    return {
        "name": job.name,
        "causes": job.label.causes,
        "failures": job.label.failures,
        "said": [[s.text[:80], s.serious, s.failure, s.cause] for s in said[:5]],
        "error": error,
    }


def ours_says(job: corpus.Job) -> tuple[list[Any], str | None]:
    from benchmarks.accuracy import run as watch
    from benchmarks.peers.adapters import Said

    row = watch(job)
    said = [Said(a.cause, True, a.failure, a.cause) for a in row.answers] if row.verdict == "failed" else []
    return said or ([Said("warning", False)] if row.verdict == "warning" else []), row.error


def worker(name: str, limit: int | None, processes: int) -> list[dict[str, Any]]:
    jobs = chosen(limit)
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=50) as pool:
        return pool.starmap(run, [(name, job) for job in jobs], chunksize=1)


def installed(name: str) -> Path | None:
    """The folder of a peer's packages, made when it lacks; None where that fails."""
    packages = PEERS[name].packages
    folder = FOLDERS / f"peer-{packages[0]}"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        if subprocess.run([*command, "--target", str(folder), *packages]).returncode:
            return None
    return folder


def rows_of(name: str, limit: int | None, processes: int) -> list[dict[str, Any]] | None:
    path = [str(ROOT)]
    if name != OURS and PEERS[name].packages:
        folder = installed(name)
        if folder is None:
            return None
        path.append(str(folder))
    with tempfile.TemporaryDirectory() as folder_name:
        out = Path(folder_name) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.peers", "--worker", name, "--out", str(out)]
        command += ["--jobs", str(processes)] + ([] if limit is None else ["--limit", str(limit)])
        paths = os.pathsep.join(path)
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, cwd=ROOT)
        return json.loads(out.read_text()) if done.returncode == 0 else None


def kept(out: Path, limit: int | None) -> dict[str, list[dict[str, Any]] | None]:
    """Results of an earlier call on the same trainings, by tool."""
    data = json.loads(out.read_text()) if out.exists() else {}
    same = (data.get("version"), data.get("limit")) == (corpus.VERSION, limit)
    return dict(data["results"]) if same else {}


def first(row: dict[str, Any]) -> list[Any]:
    return row["said"][0] if row["said"] else ["", False, "", ""]


def line(name: str, rows: Sequence[dict[str, Any]] | None) -> str:
    if rows is None:
        return f"| {name} | could not be installed or run | | | | | | | |"
    faulty, healthy = [r for r in rows if r["causes"]], [r for r in rows if not r["causes"]]

    def of(group: Sequence[dict[str, Any]], right: Any) -> Share:
        hits = [bool(right(r)) for r in group]
        return Share(sum(hits), len(hits))

    cells = [
        of(faulty, lambda r: first(r)[1]),
        of(faulty, lambda r: r["said"]),
        of(healthy, lambda r: first(r)[1]),
        of(healthy, lambda r: r["said"]),
        of(faulty, lambda r: first(r)[2] in r["failures"]),
        of(faulty, lambda r: first(r)[3] in r["causes"]),
        of(rows, lambda r: r["error"]),
    ]
    note = PEERS[name].note if name in PEERS else ""
    return f"| {name} | " + " | ".join(_cell(c) for c in cells) + f" | {note} |"


def _cell(share: Share) -> str:
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def written(results: dict[str, list[dict[str, Any]] | None], how: str) -> str:
    rows = next(r for r in results.values() if r is not None)
    faulty = sum(bool(r["causes"]) for r in rows)
    head = ["tool", "detected, serious", "detected, any", "false alarms, serious", "false alarms, any"]
    head += ["kind of failure right", "cause right", "broke", "note"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    lines += [line(name, found) for name, found in results.items()]
    intro = INTRO.format(faulty=faulty, healthy=len(rows) - faulty, version=corpus.VERSION, how=how)
    return "\n".join([intro, *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="at most so many faulty and so many healthy runs")
    parser.add_argument("--only", default="", help="tools whose name has this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        args.out.write_text(json.dumps(worker(args.worker, args.limit, args.jobs)))
        return
    names = [n for n in (OURS, *PEERS) if args.only in n]
    if not names:
        raise SystemExit(f"no tool has {args.only!r} in its name; there are: {', '.join((OURS, *PEERS))}")
    results = kept(args.out, args.limit)
    for name in names:
        print(name, file=sys.stderr, flush=True)
        results[name] = rows_of(name, args.limit, args.jobs)
        print(line(name, results[name]), flush=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"version": corpus.VERSION, "limit": args.limit, "results": results}) + "\n")
    if set(results) == {OURS, *PEERS}:
        results = {name: results[name] for name in (OURS, *PEERS)}
        how = "all of it" if args.limit is None else f"evenly drawn, at most {args.limit} of each kind"
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(written(results, how))


if __name__ == "__main__":
    main()
