#!/usr/bin/env python3
"""`neuraldbg compare` over thousands of runs on MLflow's server with PostgreSQL; writes `docs/benchmarks/compare.md`.

    python -m benchmarks.compare                 1,000 and 5,000 runs, some three minutes; needs Debian's postgresql
    python -m benchmarks.compare --runs 200      a shorter one

Three trainings are run for real with `autolog()`; the others are copies of their runs by straight SQL, each with an id,
a time and hyper-parameters of its own. So every run has all the tags, metrics and the description of a real one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.servers import Postgres, Server

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "compare.md"
KINDS = ("healthy", "nan", "rate")
GOAL = 30.0  # seconds for 5,000 runs
COLUMNS = {
    "runs": "name, source_type, source_name, entry_point_name, user_id, status, start_time, end_time, deleted_time, "
    "source_version, lifecycle_stage, artifact_uri",
    "tags": "key, value",
    "latest_metrics": "key, value, timestamp, step, is_nan",
    "metrics": "key, value, timestamp, step, is_nan",
}
INTRO = """# Comparing thousands of runs

Written by `make bench-compare` (`python -m benchmarks.compare`) on {date}; do not edit.

`neuraldbg compare mlflow:EXPERIMENT --json` in a process of its own, against `mlflow server` with the settings of
docker-compose.yml on PostgreSQL {postgres}, both on the same {cores} cores as the command. MLflow {mlflow}. The runs
are copies, by straight SQL, of {kinds} real ones that `autolog()` reported, with hyper-parameters of their own: {tags}
tags, {metrics} metrics and {params} params each. No artifact is read. "Reading" is MLflow's search, over HTTP, up to
our rows, from both ends of the experiment at once; "comparing" is all that NeuralDBG itself does with them. Memory is
the peak of the command's process; importing MLflow alone takes {floor} MB of it. The machine did other work as well:
its load was {load}.

| runs | seconds in all | importing | reading | comparing | CPU seconds: the command | the server | peak memory |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
# A small process in between: Linux counts what a process was before its exec, here PyTorch and MLflow, as its peak too.
LAUNCH = """
import os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - start
print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
CHILD = """
import json, sys, time
start = time.perf_counter()
import mlflow
from mlflow import MlflowClient
from neuraldbg.sweep.compare import compare
from neuraldbg.sweep.rows import rows_of
imported = time.perf_counter()
rows = list(rows_of(sys.argv[1]))
read = time.perf_counter()
found = compare(rows)
done = time.perf_counter()
causes = [(c.cause, c.failed, str(c.splits[0].condition)) for c in found.causes]
times = {"importing": imported - start, "reading": read - imported, "comparing": done - read}
print(json.dumps({**times, "rows": len(rows), "causes": causes}))
"""


@dataclass(frozen=True)
class Measured:
    """One run of a process: wall and CPU time in seconds, peak resident memory in MB, what it printed."""

    wall: float
    cpu: float
    peak: float
    out: str


def measured(command: Sequence[str], url: str) -> Measured:
    """Run a command against a server. Raises CalledProcessError where it fails."""
    environment = {**os.environ, "MLFLOW_TRACKING_URI": url, "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-c", LAUNCH, *command]
    done = subprocess.run(start, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    wall, cpu, peak = (float(figure) for figure in done.stderr.splitlines()[-1].split())
    return Measured(wall, cpu, peak, done.stdout)


def reported(url: str) -> dict[str, str]:
    """A real run of each kind; kind -> run id."""
    import mlflow

    from neuraldbg.integrations.mlflow import autolog
    from tests.services import trainings

    mlflow.set_tracking_uri(url)
    mlflow.set_experiment("templates")
    autolog()
    found = {kind: trainings.run(kind) for kind in KINDS}
    autolog(disable=True)
    return found


def chosen(count: int, seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Kind and hyper-parameters of each run: high rates diverge, raw data holds NaN, the others are healthy."""
    draw = random.Random(seed)
    for _ in range(count):
        rate = 10 ** draw.uniform(-4, 1)
        data = draw.choice(["clean", "clean", "clean", "raw"])
        kind = "nan" if data == "raw" else "rate" if rate > 0.3 else "healthy"
        more = {"depth": draw.randint(1, 12), "batch_size": draw.choice([16, 64, 256]), "dropout": draw.random() / 2}
        words = {
            "optimizer": draw.choice(["sgd", "adam", "adamw"]),
            "activation": draw.choice(["relu", "gelu", "tanh"]),
        }
        yield kind, {"lr": f"{rate:.6g}", "data": data, **{k: f"{v:.6g}" for k, v in more.items()}, **words}


def load(port: int, experiment: str, templates: dict[str, str], count: int) -> None:
    """Copy the templates' runs into an experiment, by straight SQL."""
    from sqlalchemy import create_engine, text

    runs = [(f"{int(experiment):04x}{n:028x}", n, *run) for n, run in enumerate(chosen(count, seed=int(experiment)))]
    fresh = [{"id": i, "n": n, "template": templates[kind]} for i, n, kind, _ in runs]
    params = [{"id": i, "key": key, "value": value} for i, _, _, given in runs for key, value in given.items()]
    engine = create_engine(f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/mlflow")
    with engine.begin() as base:
        base.execute(
            text("CREATE TEMP TABLE fresh AS SELECT * FROM json_to_recordset(:f) AS (id text, n int, template text)"),
            {"f": json.dumps(fresh)},
        )
        for table, columns in COLUMNS.items():
            old = ", ".join(f"old.{column.strip()}" for column in columns.split(","))
            old = old.replace("old.start_time", "old.start_time + fresh.n").replace("old.name", "'run-' || fresh.n")
            where = (", experiment_id", f", {int(experiment)}") if table == "runs" else ("", "")
            base.execute(
                text(
                    f"INSERT INTO {table} (run_uuid, {columns}{where[0]}) "
                    f"SELECT fresh.id, {old}{where[1]} FROM fresh JOIN {table} old ON old.run_uuid = fresh.template"
                )
            )
        base.execute(
            text(
                "INSERT INTO params (run_uuid, key, value) "
                "SELECT * FROM json_to_recordset(:p) AS (id text, key text, value text)"
            ),
            {"p": json.dumps(params)},
        )
        base.execute(text("ANALYZE"))  # as PostgreSQL does by itself within a minute
    engine.dispose()


def group_cpu(group: int) -> float:
    """CPU seconds so far of a process group's living processes."""
    used = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) * (int(fields[2]) == group)
    return used / os.sysconf("SC_CLK_TCK")


def row(server: Server, name: str) -> tuple[str, dict[str, Any], Measured]:
    """The page's line, the parts of the time, the command as a whole."""
    assert server.process is not None
    parts: dict[str, Any] = json.loads(measured([sys.executable, "-c", CHILD, f"mlflow:{name}"], server.url).out)
    before = group_cpu(server.process.pid)
    whole = measured([sys.executable, "-m", "neuraldbg", "compare", f"mlflow:{name}", "--json"], server.url)
    busy = group_cpu(server.process.pid) - before
    cells = [f"{parts['rows']:,}", f"{whole.wall:.1f}"]
    cells += [f"{parts[part]:.1f}" for part in ("importing", "reading", "comparing")]
    cells += [f"{whole.cpu:.1f}", f"{busy:.1f}", f"{whole.peak:.0f} MB"]
    return f"| {' | '.join(cells)} |", parts, whole


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    import mlflow

    with tempfile.TemporaryDirectory() as postgres_folder, tempfile.TemporaryDirectory() as server_folder:
        postgres = Postgres(Path(postgres_folder))
        server = Server(Path(server_folder), postgres)
        try:
            templates = reported(server.url)
            client = mlflow.MlflowClient()
            data = client.get_run(templates["rate"]).data
            lines = []
            for count in options.runs:
                name = f"sweep-{count}"
                load(postgres.port, client.create_experiment(name), templates, count)
                line, parts, whole = row(server, name)
                print(line, parts["causes"], flush=True)
                lines.append(line)
            floor = measured([sys.executable, "-c", "from mlflow import MlflowClient"], server.url).peak
            version = postgres.version
        finally:
            server.stop()
            postgres.stop()
    text = INTRO.format(
        date=time.strftime("%Y-%m-%d"),
        postgres=version,
        cores=os.cpu_count(),
        load=f"{os.getloadavg()[0]:.1f}",
        mlflow=mlflow.__version__,
        kinds=len(KINDS),
        tags=len(data.tags),
        metrics=len(data.metrics),
        params=len(next(chosen(1, 0))[1]),
        floor=f"{floor:.0f}",
    )
    goal = f"\nThe goal, 5,000 runs within {GOAL:.0f} s, is {'met' if whole.wall < GOAL else 'not met'}.\n"
    options.out.write_text(text + "\n".join(lines) + "\n" + (goal if options.runs[-1] == 5000 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
