"""Builders and checks for detectors and rules, ours and yours.

A rule's test says what it must not claim and what it must:

    silent = partial(check_silent, my_rule)
    explains = partial(check_explains, my_rule)

    def test_a_jump_that_nothing_follows_is_nothing():
        silent(run(observed("rate_jump", 50, decades=2.0)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import ModuleFacts, OptimizerFacts, ParameterFacts, RunFacts
from neuraldbg.run import Run, Series, ordered
from neuraldbg.sinks import Memory

__all__ = [
    "Memory",
    "check_explains",
    "check_silent",
    "facts",
    "module",
    "observed",
    "optimizer",
    "parameter",
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
