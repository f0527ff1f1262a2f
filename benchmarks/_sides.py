"""What stands beside a training while it is timed: nothing, ours, a peer. Each is a context that gives a `Side`.

A side whose tool listens to the whole process (ours hears every backward pass, anomaly mode is global) is let in only
while its own steps run: `Side.turn` is entered outside the timed part.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import importlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from benchmarks._workloads import Training

LOG_FREQUENCIES = (1, 10, 100)  # of wandb.watch; 1000 is its default, at which a short run logs nothing


@dataclasses.dataclass(frozen=True)
class Side:
    """`step` runs one training step with the tool on; `note` says in the end what the tool did."""

    step: Callable[[], Any]
    turn: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    note: Callable[[], str] = str


@contextlib.contextmanager
def bare(training: Training, folder: Path) -> Iterator[Side]:
    yield Side(training.step)


class Turns:
    """One of our sessions in a process of many trainings: it hears signals, and its clock runs, in its turns alone."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.left = time.perf_counter()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        from neuraldbg.watch import signals

        away, session = time.perf_counter() - self.left, self.session
        session.started += away
        session.governor.started += away
        if session.governor.dense_end is not None:
            session.governor.dense_end += away
        signals.connect(session)
        try:
            yield
        finally:
            signals.disconnect(session)
            self.left = time.perf_counter()


def ours(**settings: Any) -> Callable[[Training, Path], AbstractContextManager[Side]]:
    @contextlib.contextmanager
    def side(training: Training, folder: Path) -> Iterator[Side]:
        from neuraldbg import NeuralDbg
        from neuraldbg.watch import signals

        with NeuralDbg(training.called, **settings) as dbg:
            session = dbg._session
            signals.disconnect(session)

            def note() -> str:
                coverage = dbg.diagnose().facts.coverage
                share = f", {100 * coverage.share:.1f} % by its own count" if coverage.share is not None else ""
                return f"{coverage.steps_sampled} of {coverage.steps} steps in full{share}"

            yield Side(training.step, Turns(session), note)

    return side


@contextlib.contextmanager
def anomaly(training: Training, folder: Path) -> Iterator[Side]:
    yield Side(training.step, lambda: torch.autograd.set_detect_anomaly(True))


@functools.cache
def wandb_run() -> Any:
    """One offline run for the whole process, in a folder of its own: `watch` logs into the process's current run."""
    wandb = importlib.import_module("wandb")
    home = tempfile.mkdtemp(prefix="overhead-wandb-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    return wandb.init(mode="offline", dir=home, settings=settings)


def wandb_watch(frequency: int | None) -> Callable[[Training, Path], AbstractContextManager[Side]]:
    """`wandb.watch(log="all")`, offline; `run.log` once a step as in every such loop (None: `run.log` alone)."""

    @contextlib.contextmanager
    def side(training: Training, folder: Path) -> Iterator[Side]:
        run = wandb_run()
        if frequency is not None:
            run.watch(training.model, log="all", log_freq=frequency)

        def step() -> None:
            training.step()
            run.log({"done": training.done})

        yield Side(step)
        if frequency is not None:
            run.unwatch(training.model)

    return side


@contextlib.contextmanager
def torchmortem(training: Training, folder: Path) -> Iterator[Side]:
    autopsy = importlib.import_module("torchmortem").Autopsy(training.model, optimizer=training.optimizer)
    autopsy.attach()

    def step() -> None:
        autopsy.step(loss=training.step().item())

    try:
        yield Side(step)
    finally:
        autopsy.detach()


@contextlib.contextmanager
def ormas(training: Training, folder: Path) -> Iterator[Side]:
    ormas_monitor = importlib.import_module("ormas_monitor")
    monitor = ormas_monitor.Monitor(training.model, training.optimizer, out=folder / "ormas", verbose=False)

    def step() -> None:
        loss = training.forward()
        loss.backward()
        monitor.step(loss)
        training.optimizer.step()
        training.done += 1

    try:
        yield Side(step)
    finally:
        monitor.close(report=False)


@contextlib.contextmanager
def underflow_overflow(training: Training, folder: Path) -> Iterator[Side]:
    debug_utils = importlib.import_module("transformers.debug_utils")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    watcher = debug_utils.DebugUnderflowOverflow(training.model)
    yield Side(training.step, note=lambda: f"{watcher.batch_number} batches")


OURS = "ours, `watch` after the dense steps"
SIDES: dict[str, Callable[[Training, Path], AbstractContextManager[Side]]] = {
    "bare": bare,
    "bare again": bare,
    OURS: ours(dense_steps=1),
    "ours, dense (every step in full)": ours(cadence=1),
    "autograd's anomaly mode": anomaly,
    "wandb `run.log` alone": wandb_watch(None),
    **{f'`wandb.watch(log="all")`, every {n} steps': wandb_watch(n) for n in LOG_FREQUENCIES},
    "torchmortem": torchmortem,
    "ormas-monitor": ormas,
    "`DebugUnderflowOverflow`": underflow_overflow,
}
