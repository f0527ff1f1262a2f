#!/usr/bin/env python3
"""What watching costs a step, beside nothing and beside the peers: writes `docs/benchmarks/overhead.md`.

    python -m benchmarks.overhead                 everything, about eight minutes
    python -m benchmarks.overhead --seconds 3     shorter and noisier
    python -m benchmarks.overhead --no-peers      ours alone

All sides of a workload are in one process and take turns: in every round each makes its steps, in an order drawn anew,
and is divided by the bare training of the same round, so that a machine that slows down slows all. The peers are
installed on demand into one environment, `benchmarks/.venvs/peers`; one that cannot be installed is named in the page.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "overhead.md"
VENV = ROOT / "benchmarks" / ".venvs" / "peers"
NEEDS = ("numpy", "pydantic-settings", "networkx", "jinja2", "typer", "rich")  # ours, in the peers' environment
PEERS = {
    "wandb": "wandb",
    "torchmortem": "torchmortem",
    "ormas_monitor": "ormas-monitor",
    "transformers": "transformers",
}

BLOCK = 4e-3  # seconds of one side's turn at least: a shorter one is timed more by the clock than by the training
WARM = 8  # turns before anything is counted: caches, compilation, the governor's first costs
READY = 90  # seconds for a side's first step, compilation included
DEAR = 1.5  # times bare: such a side takes every fourth round, or it would eat the time of all
WIDTHS = (16, 32, 64, 128, 256, 512, 768)
GOAL = (1.02, 1.05)  # median, 95th percentile
SAME_STEPS = 10  # of each training that are compared bit by bit


def measure(training_of: Any, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Interleaved rounds of all sides: {side: {"ratios", "bare", "note" or "error"}}."""
    from benchmarks._sides import SIDES

    out: dict[str, Any] = {name: {} for name in names}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides: dict[str, Any] = {}
        for k, name in enumerate(names):
            try:
                home = folder / str(k)
                home.mkdir()
                sides[name] = stack.enter_context(_quiet_end(SIDES[name](training_of(), home)))
                with _at_most(READY):
                    _turn(sides[name], 1)
            except Exception as error:
                sides.pop(name, None)
                out[name]["error"] = _short(error)
        bare = min(_turn(sides["bare"], 1) for _ in range(5))
        steps = max(1, round(BLOCK / bare))
        usual: dict[str, float] = {}
        for name in list(sides):
            with _failing(name, sides, out):
                usual[name] = min(_turn(sides[name], steps) for _ in range(WARM))
        dear = {name for name, t in usual.items() if t > DEAR * usual["bare"]}
        rounds: list[dict[str, float]] = []
        order, draw, end = list(sides), random.Random(0), time.perf_counter() + seconds
        while time.perf_counter() < end or len(rounds) < 12:
            draw.shuffle(order)
            took: dict[str, float] = {}
            for name in order:
                if name in sides and (name not in dear or len(rounds) % 4 == 0):
                    with _failing(name, sides, out):
                        took[name] = _turn(sides[name], steps)
            rounds.append(took)
        for name in names:
            pairs = [(r[name] / r["bare"], r["bare"]) for r in rounds if name in r]
            out[name]["ratios"] = [p for p, _ in pairs]
            out[name]["mean"] = sum(p * b for p, b in pairs) / max(1e-12, sum(b for _, b in pairs))
            if name in sides:
                out[name]["note"] = sides[name].note()
        out["bare"]["seconds"] = statistics.median(r["bare"] for r in rounds) / steps
        out["bare"]["steps"] = steps
    return out


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """A tool whose breaks make the compiler work for minutes is not waited for."""

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"the first step was not ready after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _turn(side: Any, steps: int) -> float:
    with side.turn():
        start = time.perf_counter()
        for _ in range(steps):
            side.step()
        return time.perf_counter() - start


@contextlib.contextmanager
def _failing(name: str, sides: dict[str, Any], out: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        sides.pop(name)
        out[name]["error"] = _short(error)


@contextlib.contextmanager
def _quiet_end(side: Any) -> Iterator[Any]:
    """A tool that fails while it closes has been measured all the same."""
    entered = side.__enter__()
    try:
        yield entered
    finally:
        with contextlib.suppress(Exception):
            side.__exit__(None, None, None)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def identity() -> list[tuple[str, str]]:
    """Each workload compiled, bare and watched in full from one seed: what of losses and weights differs."""
    import torch

    from benchmarks._workloads import WORKLOADS
    from neuraldbg import NeuralDbg

    rows = []
    for workload in WORKLOADS:
        runs: list[tuple[list[Any], list[Any]]] = []
        for watched in (False, True):
            torch._dynamo.reset()
            training = workload.training(compiled=True)
            torch.manual_seed(7)
            with NeuralDbg(training.called, cadence=1) if watched else contextlib.nullcontext():
                losses = [training.step().detach() for _ in range(SAME_STEPS)]
            runs.append((losses, [p.detach() for p in training.model.parameters()]))
        (a, p), (b, q) = runs
        first = next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if not torch.equal(x, y)), None)
        apart = [float((x - y).abs().max()) for x, y in zip(p, q, strict=True)]
        if first is None and not any(apart):
            rows.append((workload.name, "identical to the bit"))
        else:
            said = (
                f"losses part at step {first} ({float(a[first]):.9g}, {float(b[first]):.9g})"
                if first is not None
                else ""
            )
            rows.append((workload.name, f"{said}; largest difference of a weight {max(apart):.3g}"))
    return rows


def work(seconds: float, peers: bool, only: str) -> dict[str, Any]:
    """Everything measured, as plain data; runs in the environment that has the peers."""
    import torch

    from benchmarks._sides import OURS, SIDES
    from benchmarks._workloads import WORKLOADS, mlp_of

    torch.set_num_threads(1)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # a peer's graph breaks are told once a frame
    warnings.simplefilter("ignore")
    names = [n for n in SIDES if peers or n.startswith(("bare", "ours", "autograd"))]
    cells: list[tuple[str, str, dict[str, Any]]] = []
    chosen = [w for w in WORKLOADS if only in w.name]
    for compiled in (False, True):
        for workload in chosen:
            mode = "compiled" if compiled else "eager"
            _say(f"{workload.name}, {mode}")
            torch._dynamo.reset()
            cells.append((workload.name, mode, measure(lambda w=workload, c=compiled: w.training(c), names, seconds)))
    widths = []
    for width in WIDTHS if not only else ():
        _say(f"MLP 20x{width}")
        got = measure(mlp_of(width).training, ["bare", "bare again", OURS], seconds / 3)
        widths.append((width, got))
    _say("identity")
    return {
        "torch": torch.__version__,
        "machine": f"{os.cpu_count()} cores, one thread for PyTorch",
        "cells": cells,
        "widths": widths,
        "identity": identity() if not only else [],
        "versions": {name: _version(name) for name in PEERS.values()},
    }


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _say(text: str) -> None:
    print(f"{time.strftime('%X')} {text}", file=sys.stderr, flush=True)


# --- the page ------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" if k == 0 else "---:" for k in range(len(head)))]
    return "\n".join(f"| {line} |" for line in [*lines, *(" | ".join(r) for r in rows)])


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def figures(side: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """(median, 95th percentile, mean) of a side's paired ratios."""
    ratios = side.get("ratios")
    return (statistics.median(ratios), percentile(ratios, 0.95), side["mean"]) if ratios else None


def cell_table(cell: Mapping[str, Any]) -> str:
    rows = []
    for name, side in cell.items():
        got = figures(side)
        if name == "bare":
            continue
        if got is None or "error" in side:
            rows.append([name, "", "", "", "", f"not measured: {side.get('error', 'no round')}"])
            continue
        rows.append([name, *(f"{v:.3f}" for v in got), str(len(side["ratios"])), side.get("note", "")])
    return table(["side", "median", "95th percentile", "mean", "rounds", ""], rows)


def goal_rows(cells: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[list[str]]:
    """For each workload: ours after the dense steps, the noise of the measurement, and the cheapest peer."""
    rows = []
    for name, mode, cell in cells:
        known = {n: f for n, s in cell.items() if "error" not in s and (f := figures(s))}
        own = list(cell)[1:4]  # bare again, ours, ours dense
        shown = [f"{known[n][0]:.3f} / {known[n][1]:.3f}" if n in known else "not measured" for n in own]
        peers = {n: f for n, f in known.items() if n not in list(cell)[:4] and "alone" not in n}
        best = min(peers, key=lambda n: peers[n][0], default="")
        rows.append(
            [
                f"{name}, {mode}",
                f"{1e3 * cell['bare']['seconds']:.1f} ms",
                *shown[:2],
                "yes" if met(known.get(own[1])) else "no",
                shown[2],
                f"{best}: {peers[best][0]:.3f} / {peers[best][1]:.3f}" if best else "",
            ]
        )
    return rows


def width_rows(widths: Sequence[tuple[int, Mapping[str, Any]]]) -> list[list[str]]:
    rows = []
    for width, cell in widths:
        noise, mine = (figures(side) for side in list(cell.values())[1:])
        if noise is not None and mine is not None:
            bare = cell["bare"]
            rows.append(
                [
                    str(width),
                    f"{1e3 * bare['seconds']:.2f} ms",
                    str(bare["steps"]),
                    f"{noise[0]:.3f} / {noise[1]:.3f}",
                    f"{mine[0]:.3f} / {mine[1]:.3f}",
                    "yes" if met(mine) else "no",
                ]
            )
    return rows


def met(side: tuple[float, float, float] | None) -> bool:
    """Whether the goal holds for these (median, 95th percentile, mean)."""
    return side is not None and side[0] <= GOAL[0] and side[1] <= GOAL[1]


def page(data: Mapping[str, Any]) -> str:
    cells, widths = data["cells"], data["widths"]
    parts = [HEAD.format(**data, peers=_peers(data["versions"]), day=time.strftime("%Y-%m-%d"))]
    head = ["training", "bare step", "bare again", "ours", "goal met", "ours, dense", "cheapest peer"]
    parts.append(f"## In short\n\nMedian / 95th percentile of the paired ratios.\n\n{table(head, goal_rows(cells))}")
    if widths:
        head = ["width", "bare step", "steps a turn", "bare again", "ours", "goal met"]
        parts.append(f"## The smallest step\n\n{WIDTH_TEXT}\n\n{table(head, width_rows(widths))}\n\n{smallest(widths)}")
    if data["identity"]:
        parts.append(
            f"## The same to the bit under Inductor\n\n{SAME_TEXT}\n\n{table(['training', ''], data['identity'])}"
        )
    for name, mode, cell in cells:
        bare = cell["bare"]
        said = f"Bare step {1e3 * bare['seconds']:.2f} ms, {bare['steps']} a turn."
        parts.append(f"## {name}, {mode}\n\n{said}\n\n{cell_table(cell)}")
    return "\n\n".join(parts) + "\n"


def smallest(widths: Sequence[tuple[int, Mapping[str, Any]]]) -> str:
    """The smallest step from which on, towards longer steps, the goal holds throughout."""
    holds: tuple[int, float] | None = None
    for width, cell in sorted(widths, key=lambda w: -w[0]):
        if not met(figures(list(cell.values())[2])):
            break
        holds = width, 1e3 * cell["bare"]["seconds"]
    if holds is None:
        return "The goal does not hold at the largest width measured here."
    return f"From a step of {holds[1]:.1f} ms (width {holds[0]}) on the goal holds at every width measured."


def _peers(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {v}" if v else f"{name} (not installed)" for name, v in versions.items())


HEAD = """# What watching costs a step

Made by `make bench-overhead` on {day}: PyTorch {torch}, {machine}. Peers: {peers}.

All sides of a training are in one process, each with its own copy of model, optimizer and data, and take turns: in
every round each makes the same number of steps, in an order drawn anew, and its time is divided by that of the bare
training in the same round. "bare again" is a second bare training: what it shows beyond 1 is the measurement's noise,
on a machine that does other work as well. "mean" is all time over all bare time: it also sees the rare dear steps that
median and 95th percentile pass over. A side that takes more than 1.5 times bare stands in every fourth round only.

The goal after the dense steps: median at most 1.02, 95th percentile at most 1.05, and below every peer. `wandb.watch`
runs offline; its sides call `run.log` once a step, as every loop with it does, which has a row of its own.
torchmortem, ormas-monitor and `DebugUnderflowOverflow` run with their defaults; what a tool saw stands at the end of
its row, where it can be asked ("0 batches": nothing of the compiled model). No GPU took part."""

WIDTH_TEXT = """MLPs of twenty layers and growing width, eager, ours after the dense steps: a hook costs microseconds
whatever a step takes, so the shorter the step, the more it weighs. A turn is several steps where one is too short to
be timed."""

SAME_TEXT = f"""Each training compiled, {SAME_STEPS} steps from one seed, bare and with every step recorded in full
(`cadence=1`): losses and weights compared bit by bit."""


# --- the peers' environment ------------------------------------------------------------------------------------------


def environment() -> Path:
    """The Python that has the peers: made on demand; what cannot be installed is said and left out."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        lock = (ROOT / "requirements-dev.lock").read_text().split()
        torch = next(line for line in lock if line.startswith("torch=="))
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, torch, *NEEDS], check=True)
        for name in PEERS.values():
            _say(f"installing {name}")
            if subprocess.run([*install, torch, name]).returncode:
                _say(f"{name} cannot be installed here; its rows will say so")
    return python


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of rounds, for each training and mode")
    parser.add_argument("--no-peers", action="store_true", help="ours, bare and autograd's anomaly mode alone")
    parser.add_argument("--only", default="", help="trainings whose name holds this text; prints, writes nothing")
    parser.add_argument("--work", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.work:
        Path(args.work).write_text(json.dumps(work(args.seconds, not args.no_peers, args.only)))
        return
    python = sys.executable if args.no_peers else str(environment())
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [python, "-m", "benchmarks.overhead", "--work", str(result), "--seconds", str(args.seconds)]
        command += ["--only", args.only] + (["--no-peers"] if args.no_peers else [])
        quiet = {"WANDB_SILENT": "true", "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **quiet})
        text = page(json.loads(result.read_text()))
    if args.only:
        print(text)
        return
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
