from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.attention_mask_all_inf import attention_mask_all_inf
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, run

silent = partial(check_silent, attention_mask_all_inf)
explains = partial(check_explains, attention_mask_all_inf)

MODEL = facts(module("scores", 0), module("softmax", 1, "softmax"), module("out", 2))


def bad(layer: str = "softmax", **changes: Any) -> SemanticEvent:
    return observed(
        "nonfinite_activation", 12, layer, **{"nan_share": 0.05, "inf_share": 0.0, "largest": 1.0, **changes}
    )


def test_nan_out_of_another_layer_is_another_cause() -> None:
    silent(run(bad("out"), facts=MODEL))


def test_infinities_are_another_cause() -> None:
    silent(run(bad(inf_share=0.1), facts=MODEL))


def test_scores_that_exploded_before_are_another_cause() -> None:
    silent(run(observed("exploding_gradient", 5, growth_lg=3.0), bad(), facts=MODEL))


def test_a_row_without_a_visible_position() -> None:
    explains(run(bad(), facts=MODEL), layer="softmax", step=12, failure="data_anomaly")


def test_an_operator_that_is_no_softmax_is_another_cause() -> None:
    silent(run(bad(operator="div", detail="zero_divisor"), facts=MODEL))


def test_a_softmax_of_a_function_is_known_by_its_operator() -> None:
    masked = bad("out", operator="softmax", detail="masked_row", file="net.py", line=7, place="model")
    assert "softmax at net.py:7" in explains(run(masked, facts=MODEL), layer="out").summary
