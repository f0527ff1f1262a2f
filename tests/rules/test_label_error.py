from __future__ import annotations

from functools import partial
from typing import Any

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.label_error import label_error
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, label_error)
explains = partial(check_explains, label_error)


def jump(**changes: Any) -> SemanticEvent:
    return observed("loss_spike", 120, **{"decades": 2.2, "over_chance": 4.0, "before_over_chance": 0.04, **changes})


def test_a_spike_of_a_tiny_loss_is_healthy() -> None:
    silent(run(jump(over_chance=0.04, before_over_chance=0.0002)))


def test_a_loss_that_never_learnt_the_labels_proves_nothing() -> None:
    silent(run(jump(before_over_chance=0.9)))


def test_a_spike_of_unknown_height_proves_nothing() -> None:
    silent(run(observed("loss_spike", 120, decades=2.2, over_chance=None, before_over_chance=None)))


def test_an_input_event_at_the_jump_explains_it() -> None:
    silent(run(observed("input_sentinel", 120, value=-9999.0), jump()))


def test_a_jump_of_the_rate_explains_it() -> None:
    silent(run(observed("rate_jump", 118, decades=2.0), jump()))


def test_units_that_die_in_that_step_explain_it() -> None:
    silent(run(observed("dead_units", 120, "relu", share=0.5), jump()))


def test_a_model_that_is_confidently_wrong() -> None:
    explains(run(jump()), step=120, failure="data_anomaly")
