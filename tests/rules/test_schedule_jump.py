from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.schedule_jump import schedule_jump
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, schedule_jump)
explains = partial(check_explains, schedule_jump)

JUMP = observed("rate_jump", 50, decades=2.5, before=1e-3, after=0.3)


def test_a_jump_that_nothing_follows_is_only_noted() -> None:
    silent(run(JUMP))


def test_a_decay_in_steps_is_no_fault() -> None:
    down = observed("rate_jump", 50, decades=1.0, before=0.1, after=0.01)
    silent(run(down, observed("loss_spike", 52, decades=1.0)))


def test_a_spike_before_the_jump_is_not_its_doing() -> None:
    silent(run(observed("loss_spike", 40, decades=1.0), JUMP))


def test_a_spike_long_after_the_jump_is_not_its_doing() -> None:
    silent(run(JUMP, observed("loss_spike", 90, decades=1.0)))


def test_a_spike_right_after_the_jump() -> None:
    explains(run(JUMP, observed("loss_spike", 51, decades=1.0)), step=50, failure="optimizer_instability")


def lost(peak: float) -> SemanticEvent:
    return observed("lost_state", 700, before=0.02, after=0.3, peak=peak, optimizer="Adam", rate=1e-2)


def test_a_resume_without_state_that_stays_below_chance_is_only_noted() -> None:
    silent(run(lost(peak=0.6)))


def test_a_resume_without_state_that_throws_away_what_was_learned() -> None:
    claim = explains(run(lost(peak=2.0)), step=700, failure="optimizer_instability")
    assert "Adam starts without its state: the loss goes from 0.02 to 2 of chance" in claim.summary


def test_a_resume_at_the_first_rate_of_the_schedule_says_so() -> None:
    begun = observed("lost_state", 0, before=0.02, after=0.3, peak=2.0, lost="schedule", optimizer="SGD", rate=0.1)
    claim = explains(run(begun), step=0)
    assert "SGD starts at the first rate of its schedule" in claim.summary


def test_a_scaler_that_was_not_restored_is_only_noted() -> None:
    (claim,) = schedule_jump(run(observed("lost_state", 0, lost="scaler", optimizer="Adam", scale=65536.0)))
    assert not claim.outcome and "GradScaler looks for its scale anew" in claim.summary
