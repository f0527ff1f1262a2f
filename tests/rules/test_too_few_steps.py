from __future__ import annotations

from collections.abc import Sequence

import pytest

from neuraldbg.reasoning import diagnose
from neuraldbg.rules.too_few_steps import too_few_steps
from neuraldbg.run import Run
from neuraldbg.testing import observed, run

FALLING = [1.2 * 0.995**k for k in range(200)]


def learning(skill: Sequence[float]) -> Run:
    return run(series={"loss": [2.3 * s for s in skill], "skill": list(skill)}, steps=len(skill))


@pytest.mark.parametrize(
    "skill",
    [
        [0.97**k for k in range(200)],
        [1.1 if k < 50 else 0.6 for k in range(200)],
        [1.02] * 200,
        FALLING[:20],
    ],
    ids=["nearly learned", "settled", "at chance", "a few steps"],
)
def test_other_ends_are_no_matter_of_length(skill: list[float]) -> None:
    assert list(too_few_steps(learning(skill))) == []


def test_a_run_in_which_something_broke_or_that_goes_on_gets_no_advice() -> None:
    series = learning(FALLING).series
    assert list(too_few_steps(run(observed("loss_nonfinite", 150), series=series))) == []
    assert list(too_few_steps(run(series=series, finished=False))) == []


def test_a_loss_that_still_falls_far_above_zero_is_told_with_what_is_left() -> None:
    (claim,) = too_few_steps(learning(FALLING))
    assert claim.advice and not claim.outcome
    assert claim.summary.startswith("46% of chance is left")


def test_where_chance_is_unknown_the_first_loss_stands_for_it() -> None:
    (claim,) = too_few_steps(run(series={"loss": FALLING}))
    assert "of the first loss is left" in claim.summary


def test_the_run_stays_healthy_and_the_note_below_one_half() -> None:
    said = diagnose(learning(FALLING))
    assert said.verdict == "healthy" and said.hypotheses == ()
    assert [n.cause for n in said.notes] == ["too_few_steps"] and said.notes[0].confidence < 0.5
