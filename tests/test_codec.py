"""Values survive the way into JSON and back, as equal values of the same types."""

from __future__ import annotations

import json
import math
from typing import TypeVar

import numpy as np

from neuraldbg.codec import decode, encode
from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, Coupling, Diagnosis, GraphEdge, GraphNode, Verdict
from neuraldbg.events import EventType, SemanticEvent, observed, recovered
from neuraldbg.record import Coverage, ModuleFacts, OptimizerFacts, ParameterFacts, RunFacts

T = TypeVar("T")

DEAD = observed("dead_units", 3, "blocks[0].<b>", share=0.9, pair=(1, 2), step_range=(3, 9))
FACTS = RunFacts(
    models=("Net",),
    modules=(ModuleFacts("fc1", "Linear", order=0, parameters=2),),
    parameters=(ParameterFacts("fc1.weight", "fc1", 20, 2, "float32", True, owner=0, rms=0.5),),
    optimizers=(OptimizerFacts("SGD", (0.1, 0.2), momentum=0.9),),
    structure=frozenset({"residual", "attention"}),
    coverage=Coverage(modules=3, notes=("a note",)),
)
DIAGNOSIS = Diagnosis(
    verdict=Verdict.FAILED,
    failure_probability=0.97,
    hypotheses=(
        CausalHypothesis(
            "dead_neurons", "learning_rate_too_high", "fc1", 3, 0.87, "why", evidence=(DEAD,), causal_chain=("a", "b")
        ),
    ),
    couplings=(Coupling("a", "b", 2, 0.5),),
    graph=CausalGraph(
        (GraphNode("n0", "label", "cause", 3), GraphNode("n1", "x", "event", 4, "fc1", 2)), (GraphEdge("n0", "n1"),)
    ),
    events=(DEAD, recovered(DEAD, 12)),
    facts=FACTS,
    series={"loss": ((0, 2.3), (1, 1.9))},
    steps=40,
)


def through_json(value: T) -> T:
    return decode(type(value), json.loads(json.dumps(encode(value), allow_nan=False)))


def test_an_absent_optional_stays_none() -> None:
    assert through_json(ModuleFacts("fc1", "Linear")).order is None


def test_a_layer_called_nan_stays_text() -> None:
    assert through_json(observed("dead_units", 0, "nan", note="nan")) == observed("dead_units", 0, "nan", note="nan")


def test_fields_of_a_newer_version_are_ignored_and_missing_ones_take_their_default() -> None:
    assert decode(Coverage, {"modules": 4, "invented_later": [1]}) == Coverage(modules=4)


def test_a_whole_diagnosis_comes_back_equal_and_of_the_same_types() -> None:
    back = through_json(DIAGNOSIS)
    assert back == DIAGNOSIS
    assert back.verdict is Verdict.FAILED
    assert back.events[0].event_type is EventType.ACTIVATION_REGIME_SHIFT
    assert isinstance(back.facts.structure, frozenset)
    assert isinstance(back.events[0].metadata["pair"], tuple)


def test_non_finite_numbers_are_valid_json_and_come_back() -> None:
    event = observed("loss_nonfinite", 1, None, at=float("nan"), low=-math.inf, trail=(1.0, math.inf))
    back = through_json(event)
    assert math.isnan(back.metadata["at"])
    assert back.metadata["low"] == -math.inf
    assert back.metadata["trail"] == (1.0, math.inf)
    assert through_json(ParameterFacts("w", "", 1, 1, "float32", True, rms=math.inf)).rms == math.inf


def test_numbers_of_numpy_in_metadata_become_plain_ones() -> None:
    event = SemanticEvent(EventType.DATA_ANOMALY, None, 0, "normal", "nan", metadata={"share": np.float32(0.5)})
    assert encode(event)["metadata"] == {"share": 0.5}
