from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.learning_rate_too_low import learning_rate_too_low
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, learning_rate_too_low)
explains = partial(check_explains, learning_rate_too_low)


def slow(left: float = 0.77) -> SemanticEvent:
    return observed("slow_progress", 0, tail_head=left, monotone=1.0, cosine=1.0)


def test_a_steady_fall_that_arrives_is_healthy() -> None:
    silent(run(slow(0.01)))


def test_a_loss_far_below_chance_is_only_early() -> None:
    silent(run(slow(), series={"skill": [0.2] * 50}))


def test_a_saturated_layer_is_the_deeper_cause() -> None:
    silent(run(slow(), observed("saturation", 0, "sigmoid", share=0.75, at_start=True)))


def test_huge_targets_are_the_deeper_cause() -> None:
    silent(run(slow(), observed("unscaled_target", 0, rms_lg=7.0)))


def test_a_steady_fall_that_leaves_most_of_the_loss() -> None:
    explains(run(slow(), series={"skill": [5.0] * 50}), step=0, failure="optimizer_instability")
