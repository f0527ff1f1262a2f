"""Builders and checks for detectors and rules, ours and yours.

A rule's test says what it must not claim and what it must:

    silent = partial(check_silent, my_rule)
    explains = partial(check_explains, my_rule)

    def test_a_jump_that_nothing_follows_is_nothing():
        silent(run(observed("rate_jump", 50, decades=2.0)))

A detector's test feeds it records and looks at the events:

    events = feed(my_detector, [record(k, loss=2.0) for k in range(50)])
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent, observed
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
from neuraldbg.run import Run, Series, ordered
from neuraldbg.settings import Settings, make
from neuraldbg.sinks import Memory

__all__ = [
    "Memory",
    "check_explains",
    "check_silent",
    "facts",
    "feed",
    "input_stats",
    "layer_stats",
    "loss_stats",
    "module",
    "observed",
    "optimizer",
    "parameter",
    "parameter_stats",
    "record",
    "run",
    "series",
]

Rule = Callable[[Run], Iterator[Claim]]


def series(*values: float, first: int = 0) -> Series:
    """A number at each step from `first` on."""
    return Series(tuple((first + i, value) for i, value in enumerate(values)))


def run(
    *events: SemanticEvent,
    facts: RunFacts | None = None,
    series: Mapping[str, Series | Sequence[float]] | None = None,
    steps: int = 100,
    finished: bool = True,
) -> Run:
    """A run in which these events were seen; a series may be given as plain numbers, one a step."""
    known = {
        name: found if isinstance(found, Series) else Series(tuple(enumerate(found)))
        for name, found in (series or {}).items()
    }
    return Run(ordered(events), facts or RunFacts(), known, steps, finished)


def module(name: str, order: int | None = 0, activation: str = "", **more: Any) -> ModuleFacts:
    """A leaf module that ran `order`-th; its kind is guessed from the activation."""
    kind = more.pop("kind", activation.capitalize() if activation else "Linear")
    parameters = more.pop("parameters", 0 if activation else 100)
    return ModuleFacts(name, kind, order, activation, parameters=parameters, trainable=parameters, **more)


def parameter(name: str, owner: int | None = 0, **more: Any) -> ParameterFacts:
    """A trainable float32 matrix that the first optimizer holds."""
    given: dict[str, Any] = {"numel": 100, "dims": 2, "dtype": "float32", "trainable": True, **more}
    return ParameterFacts(name=name, module=given.pop("module", name.rpartition(".")[0]), owner=owner, **given)


def optimizer(kind: str = "SGD", rate: float = 0.1, **more: Any) -> OptimizerFacts:
    return OptimizerFacts(kind=kind, rates=(rate,), **more)


def facts(*modules: ModuleFacts, structure: Sequence[str] = (), **more: Any) -> RunFacts:
    return RunFacts(modules=modules, structure=frozenset(structure), **more)


def layer_stats(rms: float = 1.0, **more: Any) -> LayerStats:
    """The output of a layer that keeps its signal's size and tells its samples apart."""
    given: dict[str, Any] = {"low": -3 * rms, "high": 3 * rms, "mean": 0.0, "spread": 0.7, "inputs_rms": 1.0, **more}
    return LayerStats(rms=rms, **given)


def input_stats(means: Sequence[float] = (0.0, 0.0, 0.0), name: str = "x", **more: Any) -> InputStats:
    """A batch of 32 samples whose features have these means and a deviation of 1; fingerprints are the caller's."""
    stds = tuple(more.pop("stds", (1.0,) * len(means)))
    rms = tuple((m * m + s * s) ** 0.5 for m, s in zip(means, stds, strict=True))
    given: dict[str, Any] = {"rows": 32, "rms": rms, "far": 3.0, "far_repeats": 1, "fingerprint": 0.0, **more}
    given.setdefault("far_value", given["far"])
    return InputStats(name=name, means=tuple(means), stds=stds, **given)


def parameter_stats(gradient: float | None = 0.1, **more: Any) -> ParameterStats:
    """A parameter that gets gradient and moves by a thousandth of itself."""
    given: dict[str, Any] = {"weight": 1.0, "update": 1e-3, "moved": True, **more}
    return ParameterStats(gradient=gradient, **given)


def loss_stats(kind: str = "mse", **more: Any) -> LossStats:
    """What the loss's own operator saw."""
    return LossStats(kind=kind, **more)


def record(step: int, **more: Any) -> StepRecord:
    """One sampled step of a plain loop."""
    return StepRecord(step=step, **more)


def feed(
    detector: Any,
    records: Iterable[StepRecord],
    facts: RunFacts | None = None,
    settings: Settings | None = None,
    pure: bool = True,
) -> list[SemanticEvent]:
    """The events that a detector (a module with `initial`, `step` and perhaps `finish`) finds in these records.

    A step must leave the state that it was given as it was; `pure=False` for one that collects in place.
    """
    known = facts or RunFacts()
    state, events = detector.initial(settings or make()), []
    for one in records:
        before, given = state, pickle.dumps(state) if pure else b""
        state, new = detector.step(state, one, known)
        assert not pure or pickle.dumps(before) == given, f"step {one.step} changed the state that it was given"
        events.extend(new)
    finish = getattr(detector, "finish", None)
    return [*events, *(finish(state, known) if finish is not None else [])]


def check_silent(rule: Rule, run: Run) -> None:
    """The rule claims no failure of this run; a note, which says that nothing was hurt, is no claim of failure."""
    claims = [c for c in rule(run) if c.outcome]
    assert not claims, f"the rule claims {claims[0].cause} at step {claims[0].step}: {claims[0].summary}"


def check_explains(
    rule: Rule, run: Run, layer: str | None = None, step: int | None = None, failure: str | None = None
) -> Claim:
    """The rule claims a failure of this run, in this layer and since this step; the claim is given back."""
    claims = [c for c in rule(run) if c.outcome]
    assert claims, "the rule claims nothing"
    claim = claims[0]
    assert claim.layer_name == layer, f"layer: {claim.layer_name!r}, not {layer!r}"
    assert step is None or claim.step == step, f"step: {claim.step}, not {step}"
    assert failure is None or claim.failure_type == failure, f"failure type: {claim.failure_type}, not {failure}"
    assert claim.remedy and claim.refuted_by, "a claim needs a remedy and what would disprove it"
    assert claim.evidence_for, "a claim needs evidence"
    return claim
