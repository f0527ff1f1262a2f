"""Sessions with a diagnosis made by hand, and the ways in which users log beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, Diagnosis, GraphNode, Verdict
from neuraldbg.events import observed, recovered
from neuraldbg.record import RunFacts
from neuraldbg.sinks import FanOut, Sink

FACTS = RunFacts(models=("Net",))
DEAD = observed("dead_units", 3, "blocks.0.act", share=0.9)
NAN = observed("nonfinite_activation", 7, "blocks.1")
EVENTS = (DEAD, recovered(DEAD, 5), NAN)
TOP = CausalHypothesis(
    "dead_neurons", "learning_rate_too_high", "blocks.0.act", 3, 0.87, "Units died", remedy="Lower it", evidence=(DEAD,)
)
OTHER = CausalHypothesis("dead_neurons", "dead_relu_negative_bias", None, 9, 0.25, "A bias")
FAILED = Diagnosis(
    Verdict.FAILED,
    0.98,
    hypotheses=(TOP, OTHER),
    graph=CausalGraph((GraphNode("n0", "rate", "cause", 3),)),
    events=EVENTS,
    facts=FACTS,
    steps=9,
)
HEALTHY = Diagnosis(Verdict.HEALTHY, 0.02, facts=FACTS, steps=9)
FILES = {"report.html", "graph.svg", "report.md", "graph.mmd", "hypotheses.json", "diagnosis.json", "events.jsonl"}


def session(sink: Sink, diagnosis: Diagnosis = FAILED, between: Callable[[int], None] = lambda number: None) -> float:
    """A session with one sink, and what the user does between its events; how long its end took."""
    fanout = FanOut([sink])
    fanout.open(FACTS)
    fanout.points(0, {"loss": 2.0})
    for number, event in enumerate(diagnosis.events):
        fanout.event(event)
        settle(fanout)
        between(number)
    start = time.monotonic()
    fanout.close(diagnosis)
    return time.monotonic() - start


def settle(fanout: FanOut) -> None:
    """Wait until the worker has handed over what it has, so that a row of ours has its place among the user's."""
    deadline = time.monotonic() + 10
    while any(lane._waiting for lane in fanout._lanes) and time.monotonic() < deadline:
        time.sleep(0.002)


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def automatic(run: Any, number: int) -> None:
    run.log({"loss": 1.0 / (number + 1), "epoch": number})


def automatic_in_parts(run: Any, number: int) -> None:
    run.log({"loss": 1.0 / (number + 1)}, commit=False)
    run.log({"accuracy": number / 10})


def explicit(run: Any, number: int) -> None:
    run.log({"loss": 1.0 / (number + 1)}, step=number)


def explicit_in_parts(run: Any, number: int) -> None:
    run.log({"loss": 1.0 / (number + 1)}, step=3 * number)
    run.log({"accuracy": number / 10}, step=3 * number)


def explicit_and_committed(run: Any, number: int) -> None:
    run.log({"loss": 1.0 / (number + 1)}, step=number, commit=True)
