#!/usr/bin/env python3
"""What watching keeps in memory, over steps and over modules: writes `docs/benchmarks/memory.md`.

    python -m benchmarks.memory                     100,000 steps of a small model, about six minutes
    python -m benchmarks.memory --steps 20000       a shorter run

Three questions: does a long run grow (resident memory of one training, in a process of its own), how much do the
statistics of 1,000 modules take (the trace alone, fed with records as the watcher makes them, by tracemalloc), and
does the cost of a step grow in proportion to the number of modules (10 to 1,000).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.overhead import table
from neuraldbg import reasoning
from neuraldbg.record import (
    InputStats,
    LayerStats,
    LossStats,
    ModuleFacts,
    OptimizerFacts,
    ParameterFacts,
    ParameterStats,
    RunFacts,
    StepRecord,
)
from neuraldbg.settings import make
from neuraldbg.trace import Trace

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "memory.md"
MODULES = 1000  # of the model whose statistics are weighed
TRACE_SECONDS = 75.0  # of feeding the trace, twice; then the rest is extrapolated
COUNTS = (10, 30, 100, 300, 1000)
LIMIT_MB = 64  # what the design allows for all statistics


def resident() -> float:
    """MB of this process in memory now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def long_run(steps: int, watched: bool) -> list[tuple[int, float]]:
    """A small model trained for long: (step, resident MB) at ten places."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(32, 32, 8)
    seen = []
    with NeuralDbg(model) if watched else contextlib.nullcontext():
        for step in range(1, steps + 1):
            batch = x[step % 32] + 0.01 * torch.randn(32, 8)
            optimizer.zero_grad()
            (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            if step % (steps // 10) == 0:
                gc.collect()
                seen.append((step, resident()))
    return seen


# --- the trace alone -----------------------------------------------------------------------------------------------


def names(modules: int) -> list[str]:
    return [f"blocks.{k}.linear" for k in range(modules)]


def facts_of(layers: Sequence[str]) -> RunFacts:
    return RunFacts(
        models=("model",),
        modules=tuple(ModuleFacts(n, "Linear", order=k, parameters=4160, trainable=4160) for k, n in enumerate(layers)),
        parameters=tuple(ParameterFacts(f"{n}.weight", n, 4096, 2, "float32", True, owner=0, rms=0.1) for n in layers),
        optimizers=(OptimizerFacts("Adam", (1e-3,), parameters=len(layers)),),
    )


def records(made: Sequence[StepRecord], steps: int) -> Iterator[StepRecord]:
    """Records of a healthy training with noise, as the watcher makes them: a full one a step.

    The layers' numbers come back every sixteen steps, or making them would take longer than feeding them.
    """
    draw = np.random.default_rng(1)
    for step in range(steps):
        loss = float(0.1 + 2.0 * np.exp(-step / 2000) * (1 + 0.1 * draw.standard_normal()))
        yield dataclasses.replace(made[step % len(made)], step=step, loss=loss)


def _made(layers: Sequence[str], count: int) -> Iterator[StepRecord]:
    draw = np.random.default_rng(0)
    for step in range(count):
        noise = 1 + 0.1 * draw.standard_normal(len(layers))
        yield StepRecord(
            step=step,
            gradient_norm=float(noise[0]),
            rates=(1e-3,),
            inputs=(
                InputStats("x", 32, (0.0,) * 64, (1.0,) * 64, (1.0,) * 64, 3.0, 3.0, 1, float(draw.standard_normal())),
            ),
            layers={
                n: LayerStats(
                    rms=float(v),
                    low=-3 * float(v),
                    high=3 * float(v),
                    mean=0.01,
                    spread=0.9 * float(v),
                    offset=0.1,
                    inputs_rms=1.0,
                    inputs_high=3.0,
                )
                for n, v in zip(layers, noise, strict=True)
            },
            parameters={
                f"{n}.weight": ParameterStats(1e-3 * float(v), 0.1, 1e-3 * float(v), True)
                for n, v in zip(layers, noise, strict=True)
            },
            loss_stats=LossStats("mse", "mean", 0.5, 1.0, -1.0, 1.0, 0.5, 3.0),
            group_gradients=(1e-3,),
            cosine=0.5,
            window=5,
        )


def trace_growth(modules: int, steps: int, seconds: float) -> dict[str, Any]:
    """Feeds a trace with full records until the time is over: (step, MB that the trace holds) as it goes."""
    layers = names(modules)
    facts = facts_of(layers)
    settings = make()
    made = list(_made(layers, 16))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    trace = Trace(settings, reasoning.detectors())
    seen: list[tuple[int, float]] = []
    end, mark = time.perf_counter() + seconds, 25
    for record in records(made, steps):
        trace.feed(record, facts)
        if record.step + 1 == mark:
            gc.collect()
            seen.append((mark, (tracemalloc.get_traced_memory()[0] - before) / 1e6))
            mark *= 2
        if time.perf_counter() > end:
            break
    gc.collect()
    seen.append((trace.steps, (tracemalloc.get_traced_memory()[0] - before) / 1e6))
    tracemalloc.stop()
    return {"seen": seen, "events": len(trace.events), "steps": trace.steps}


# --- cost against modules --------------------------------------------------------------------------------------------


def step_costs(repeats: int) -> list[tuple[int, float, float]]:
    """(modules, seconds of a full sample, of a step with the loss alone) for models of 10 to 1,000 modules."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg
    from neuraldbg.watch.governor import Level

    torch.set_num_threads(1)
    rows = []
    for count in COUNTS:
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(16, 16) if k % 2 else nn.Tanh() for k in range(count - 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        x = torch.randn(8, 16)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        with NeuralDbg(model, cadence=1) as dbg:
            session = dbg._session
            for _ in range(20):
                step()
            full = []
            for _ in range(repeats):
                before = session.spent
                step()
                full.append(session.spent - before)
            session.governor.decide = lambda *_: Level.LOSS  # type: ignore[method-assign]
            step()
            light = []
            for _ in range(5):  # what waits is read every 64 steps: whole rounds of that
                before = session.spent
                for _ in range(64):
                    step()
                light.append((session.spent - before) / 64)
        rows.append((count, statistics.median(full), statistics.median(light)))
    return rows


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """(slope, intercept, share of the variance explained) of a straight line, weighted for equal relative errors."""
    x, y = np.asarray(xs), np.asarray(ys)
    slope, start = np.polyfit(x, y, 1, w=1 / y)
    log = np.log(y) - np.log(np.maximum(slope * x + start, 1e-12))
    return float(slope), float(start), float(1 - log.var() / np.log(y).var())


# --- the page ------------------------------------------------------------------------------------------------------


def page(
    runs: Sequence[list[Any]], traced: dict[str, Any], narrow: dict[str, Any], costs: list[Any], steps: int
) -> str:
    bare, watched = runs
    first, last = watched[0][1], watched[-1][1]
    wide = dict(traced["seen"])
    shared = [k for k, _ in narrow["seen"] if k in wide]
    low, high = shared[0], shared[-1]
    grown = [1e3 * (seen[high] - seen[low]) for seen in (wide, dict(narrow["seen"]))]
    held, most = max(wide.values()), max(m for _, m in narrow["seen"])
    expected = held + most - dict(narrow["seen"])[high]
    full = line([c for c, _, _ in costs], [f for _, f, _ in costs])
    light = line([c for c, _, _ in costs], [s for _, _, s in costs])
    import torch

    return f"""# What watching keeps in memory

Made by `make bench-memory` on {time.strftime("%Y-%m-%d")}: PyTorch {torch.__version__}, {
        os.cpu_count()
    } cores, one thread for PyTorch.

## A long run

{steps:,} steps of an MLP with 161 parameters and default settings; resident memory of the process in MB. From
{watched[0][0]:,} steps to {watched[-1][0]:,} it changed by {last - first:+.1f} MB (without NeuralDBG: {
        bare[-1][1] - bare[0][1]:+.1f} MB).

{
        table(
            ["steps", "watched", "bare"],
            [[f"{s:,}", f"{m:.1f}", f"{b:.1f}"] for (s, m), (_, b) in zip(watched, bare, strict=True)],
        )
    }

## Statistics of {MODULES:,} modules

The trace alone (series, detectors' states, events) fed with full records of {MODULES:,} modules, every step in full,
measured by tracemalloc. Until step {traced["steps"]:,} it held {held:.1f} MB at most (allowed: {
        LIMIT_MB
    } MB). What goes on growing is
shown by {MODULES // 100} modules, which reach more steps in the same time: from step {low} to {high} the trace grew by
{grown[0]:.0f} kB with {MODULES:,} modules and by {grown[1]:.0f} kB with {
        MODULES // 100
    }. What grows alike in both are the series
of the whole run (loss, rate, norms), which are thinned at 1,200 points. With what {
        MODULES // 100
    } modules added until step
{narrow["steps"]:,}: {
        expected:.1f} MB. A run with default settings records at most every tenth step in full after the dense steps.

{table(["steps", "MB held, 1,000 modules"], [[f"{s:,}", f"{m:.2f}"] for s, m in traced["seen"]])}

{table(["steps", "MB held, 10 modules"], [[f"{s:,}", f"{m:.2f}"] for s, m in narrow["seen"]])}

## Cost against the number of modules

Time that watching itself takes in a step, by its own count, for chains of small layers.

{
        table(
            ["modules", "full sample", "a module", "loss alone", "a module"],
            [
                [f"{c:,}", f"{1e3 * f:.2f} ms", f"{1e6 * f / c:.0f} µs", f"{1e3 * s:.3f} ms", f"{1e6 * s / c:.2f} µs"]
                for c, f, s in costs
            ],
        )
    }

A straight line through the full samples: {1e6 * full[0]:.0f} µs a module and {
        1e3 * full[1]:.2f} ms beside, which explains
{100 * full[2]:.1f} % of the variance (of logarithms); through the steps with the loss alone: {
        1e6 * light[0]:.2f} µs a module
and {1e3 * light[1]:.3f} ms beside, {100 * light[2]:.1f} %.
"""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="of the long run")
    parser.add_argument("--seconds", type=float, default=TRACE_SECONDS, help="of feeding the trace")
    parser.add_argument("--run", choices=["bare", "watched"], help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.run:
        print(json.dumps(long_run(args.steps, args.run == "watched")))
        return
    runs = []
    for kind in ("bare", "watched"):
        command = [sys.executable, "-m", "benchmarks.memory", "--run", kind, "--steps", str(args.steps)]
        done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
        print(f"{kind}: {runs[-1][0]} ... {runs[-1][-1]}", file=sys.stderr)
    traced = trace_growth(MODULES, 100_000, args.seconds)
    narrow = trace_growth(MODULES // 100, 100_000, args.seconds)
    print(f"trace: {traced['seen']}, {narrow['seen']}", file=sys.stderr)
    text = page(runs, traced, narrow, step_costs(30), args.steps)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
