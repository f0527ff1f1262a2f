from __future__ import annotations

from functools import partial

import pytest

from neuraldbg.detectors import lost_state
from neuraldbg.record import OptimizerFacts, StepRecord
from neuraldbg.testing import facts, feed, loss_stats, record

FRESH = facts(optimizers=(OptimizerFacts("Adam", (1e-2,), fresh=True),))
found = partial(feed, lost_state, facts=FRESH)


def skills(*values: float | None) -> list[StepRecord]:
    return [record(k, loss_stats=None if v is None else loss_stats(value=v, chance=1.0)) for k, v in enumerate(values)]


JUMP = (0.02, 0.3, 2.0, 0.4, 0.3, 0.2, 0.1)


@pytest.mark.parametrize(
    "losses",
    [
        (1.1, 5.0, 20.0, 10.0, 8.0, 6.0),
        (0.02, 0.03, 0.025, 0.03, 0.02, 0.03),
        (0.02, 0.5, 0.03, 0.02, 0.02, 0.03),
        (0.02, 0.3, 2.0),
        (None,) * 9,
        (0.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    ],
    ids=["fresh weights", "moments in place", "one odd batch", "too short", "chance unknown", "a loss of zero"],
)
def test_other_starts_are_no_resume_without_state(losses: tuple[float | None, ...]) -> None:
    assert found(skills(*losses)) == []


@pytest.mark.parametrize("fresh", [False, None])
def test_an_optimizer_with_a_past_or_without_a_counter_has_lost_nothing(fresh: bool | None) -> None:
    known = facts(optimizers=(OptimizerFacts("Adam", (1e-2,), fresh=fresh),))
    assert found(skills(*JUMP), facts=known) == []


def test_trained_weights_under_a_fresh_optimizer_that_jump_are_told_at_the_first_step() -> None:
    (event,) = found(skills(*JUMP))
    assert (event.symptom, event.layer_name, event.step) == ("lost_state", None, 0)
    assert event.metadata == {
        "before": 0.02,
        "after": 0.3,
        "peak": 2.0,
        "lost": "state",
        "optimizer": "Adam",
        "rate": 1e-2,
    }


@pytest.mark.parametrize("first_rate", [True, False, None])
def test_a_schedule_that_begins_anew_counts_where_the_optimizer_has_no_counter(first_rate: bool | None) -> None:
    known = facts(optimizers=(OptimizerFacts("SGD", (0.1,), first_rate=first_rate),))
    assert [e.metadata["lost"] for e in found(skills(*JUMP), facts=known)] == ["schedule"] * (first_rate is True)


def test_it_is_told_at_the_step_where_watching_began_and_once() -> None:
    late = [record(r.step + 700, loss_stats=r.loss_stats) for r in skills(*JUMP, *JUMP)]
    assert [e.step for e in found(late)] == [700]


def skipping(*skipped: bool) -> list[StepRecord]:
    return [record(k, skipped=s, loss_scale=65536.0) for k, s in enumerate(skipped)]


PAST = facts(optimizers=(OptimizerFacts("Adam", (1e-2,), fresh=False),))


def test_a_scaler_that_skips_now_and_then_or_with_a_new_optimizer_has_lost_nothing() -> None:
    assert found(skipping(True, False, True, False), facts=PAST) == []
    assert found(skipping(True, True, True, False)) == []


def test_a_scaler_that_looks_for_its_scale_under_an_optimizer_with_a_past_is_told_once() -> None:
    (event,) = found(skipping(True, True, True, False), facts=PAST)
    assert (event.step, event.metadata) == (0, {"lost": "scaler", "optimizer": "Adam", "scale": 65536.0})
