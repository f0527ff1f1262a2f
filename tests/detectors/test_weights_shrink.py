from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import weights_shrink
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.testing import facts, feed, module, optimizer, parameter, parameter_stats, record

NAMES = ("a", "b", "c")


def net(decay: float = 0.1, rms: float | None = 1.0) -> RunFacts:
    return facts(
        *[module(n, k) for k, n in enumerate(NAMES)],
        parameters=tuple(parameter(f"{n}.weight", rms=rms) for n in NAMES),
        optimizers=(optimizer(), optimizer(weight_decay=decay)),
    )


found = partial(feed, weights_shrink, facts=net())


def weights(*sizes: float | None, others: float | None = None, **more: Any) -> list[StepRecord]:
    return [
        record(
            k,
            parameters={
                f"{n}.weight": parameter_stats(weight=size if n == "a" or others is None else others) for n in NAMES
            },
            **more,
        )
        for k, size in enumerate(sizes)
    ]


def test_weights_that_lose_less_than_half_a_decade_are_regularised() -> None:
    assert found(weights(*[0.33] * 60)) == []


def test_weights_that_shrink_without_decay_were_too_large() -> None:
    assert found(weights(*[0.01] * 60), facts=net(decay=0.0)) == []
    assert found(weights(*[0.01] * 60), facts=facts()) == []


def test_one_layer_of_three_that_shrinks_is_pruned() -> None:
    assert found(weights(*[0.01] * 60, others=1.0)) == []


def test_four_steps_are_not_yet_a_state() -> None:
    assert found(weights(*([0.1] * 4 + [1.0]) * 9)) == []


def test_weights_of_unknown_or_zero_size_have_nothing_to_lose() -> None:
    assert found(weights(*[0.01] * 20), facts=net(rms=None)) == []
    assert found(weights(*[0.01] * 20), facts=net(rms=0.0)) == []
    assert found(weights(*[None] * 20)) == [] and found(weights(*[0.0] * 20)) == []


def test_weights_that_decay_to_a_third_are_told_once_since_they_are() -> None:
    (event,) = found(weights(*[0.95**k for k in range(60)]))
    assert (event.symptom, event.layer_name, event.step) == ("weights_shrink", None, 23)
    assert event.metadata["weight_decay"] == 0.1 and event.metadata["decay_lg"] == pytest.approx(-0.6, abs=0.1)


def test_five_samples_just_below_a_third_are_enough() -> None:
    assert len(found(weights(*[0.31] * 5))) == 1
