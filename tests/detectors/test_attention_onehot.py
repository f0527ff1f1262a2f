from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neuraldbg.detectors import attention_onehot
from neuraldbg.record import StepRecord
from neuraldbg.testing import facts, feed, layer_stats, module, record

HEAD = module("attn.softmax", 3, "softmax", width=16)
found = partial(feed, attention_onehot, facts=facts(HEAD))


def rows(*entropies: float | None, **more: Any) -> list[StepRecord]:
    return [record(k, layers={"attn.softmax": layer_stats(entropy=e)}, **more) for k, e in enumerate(entropies)]


def test_attention_that_is_sharp_but_spread_is_healthy() -> None:
    assert found(rows(*[0.36] * 60)) == []


def test_two_one_hot_steps_of_the_first_five_are_not_the_rule() -> None:
    assert found(rows(0.05, 0.05, 0.8, 0.8, 0.8, *[0.8] * 20)) == []


def test_a_head_that_turns_sharp_but_not_one_hot_has_learned() -> None:
    assert found(rows(*[0.9] * 5, *[0.16] * 60)) == []


def test_four_collapsed_samples_in_a_row_are_not_yet_a_collapse() -> None:
    assert found(rows(*[0.9] * 5, *([0.1] * 4 + [0.5]) * 5)) == []


@pytest.mark.parametrize(
    "other",
    [
        module("attn.softmax", 3, "softmax", width=2),
        module("attn.softmax", 3, "softmax", width=None),
        module("attn.softmax", 3, "softmax", width=16, position="output"),
        module("attn.softmax", 3, "sigmoid", width=16),
    ],
    ids=["two keys", "width unknown", "a classifier's output", "no softmax"],
)
def test_what_is_no_attention_over_several_keys_may_be_one_hot(other: Any) -> None:
    assert found(rows(*[0.01] * 20), facts=facts(other)) == []


def test_entropy_that_was_not_measured_says_nothing() -> None:
    assert found(rows(*[None] * 20)) == []
    assert found(rows(*[0.01] * 20, sampled=False)) == []


def test_attention_that_begins_one_hot_is_dated_from_its_first_step() -> None:
    (event,) = found(rows(*[0.2] * 30))
    assert (event.symptom, event.layer_name, event.step) == ("attention_onehot", "attn.softmax", 0)
    assert event.metadata["at_start"] is True and event.metadata["entropy"] == pytest.approx(0.2)


def test_attention_that_collapses_later_is_told_once_after_five_samples() -> None:
    (event,) = found(rows(*[0.9] * 20, *[0.05] * 30))
    assert (event.step, event.metadata["at_start"]) == (24, False)


def test_just_beyond_the_limits_it_is_told() -> None:
    assert len(found(rows(*[0.34] * 5))) == 1
    assert len(found(rows(*[0.9] * 5, *[0.14] * 5))) == 1
    assert len(found(rows(*[0.2] * 5), facts=facts(module("attn.softmax", 3, "softmax", width=3)))) == 1
