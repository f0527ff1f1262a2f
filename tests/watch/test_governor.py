"""The governor alone, on a clock made of numbers: what it spends, what it thins first, what makes it look again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from neuraldbg.settings import make
from neuraldbg.watch.governor import ALERT_PAUSE, ALERT_STEPS, DEAR, DEBT_RATE, RARE, Governor, Level

CHEAP = {Level.FULL: 1e-3, Level.NORM: 1e-4, Level.LOSS: 2e-6}
COSTLY = {Level.FULL: 50e-3, Level.NORM: 1e-3, Level.LOSS: 5e-5}


@dataclass
class Run:
    """A training of `seconds` a step, watched at what each level costs."""

    governor: Governor
    seconds: float
    cost: dict[Level, float]
    now: float = 0.0
    spent: float = 0.0
    levels: list[Level] = field(default_factory=list)

    def steps(self, count: int) -> list[Level]:
        """Train on; returns the levels of these steps."""
        for _ in range(count):
            level = self.governor.decide(len(self.levels), self.now, self.spent)
            self.levels.append(level)
            self.now += self.seconds + self.cost[level]
            self.spent += self.cost[level]
            self.governor.paid(level, self.cost[level])
        return self.levels[len(self.levels) - count :]

    def end_dense(self) -> Run:
        """Train until the dense steps are over (and one more)."""
        while self.governor.dense_end is None:
            self.steps(1)
        return self

    def share_of(self, count: int) -> float:
        """Train on; returns the share of that time that was spent."""
        now, spent = self.now, self.spent
        self.steps(count)
        return (self.spent - spent) / (self.now - now)


def training(seconds=10e-3, cost=CHEAP, **settings):
    return Run(Governor(make(**settings), 0.0), seconds, dict(cost))


def test_the_first_steps_are_recorded_in_full_and_no_others():
    run = training(dense_steps=30)
    assert run.steps(30) == [Level.FULL] * 30
    assert Level.FULL not in run.steps(9)


def test_dense_seconds_end_the_dense_steps_of_a_slow_training():
    run = training(seconds=1.0, dense_steps=500, dense_seconds=20.0)
    assert run.steps(20) == [Level.FULL] * 20
    assert Counter(run.steps(100))[Level.FULL] <= 10


@pytest.mark.parametrize("cost", [CHEAP, COSTLY], ids=["cheap", "dear"])
@pytest.mark.parametrize("seconds", [2e-3, 10e-3, 200e-3])
@pytest.mark.parametrize("budget", [0.005, 0.02, 0.1])
def test_the_share_spent_after_the_dense_steps_stays_within_the_budget(seconds, cost, budget):
    if cost[Level.LOSS] > 0.2 * budget * seconds:
        cost = {**cost, Level.LOSS: 0.2 * budget * seconds}  # the hooks themselves are not the governor's to thin
    run = training(seconds, cost, dense_steps=100, overhead_budget=budget).end_dense()
    assert cost[Level.LOSS] / seconds < run.share_of(8_000) <= budget


def test_what_the_budget_allows_is_used_for_the_most_part():
    run = training(10e-3, {**COSTLY, Level.LOSS: 2e-6}, dense_steps=10).end_dense()
    run.steps(50_000)
    assert run.spent <= 0.02 * run.now
    assert 0.012 < run.share_of(20_000) <= 0.02


def test_the_budget_holds_at_every_moment_and_not_on_average_alone():
    run = training(10e-3, COSTLY, dense_steps=50).end_dense()
    now, spent = run.now, run.spent
    for _ in range(5_000):
        run.steps(1)
        assert run.spent - spent <= 0.02 * (run.now - now) + COSTLY[Level.FULL]


def test_hooks_that_cost_more_than_the_budget_leave_nothing_for_samples():
    run = training(1e-3, {**CHEAP, Level.LOSS: 30e-6}, dense_steps=50).end_dense()
    levels = run.steps(5_000)
    assert set(levels) == {Level.LOSS}


def test_samples_that_turn_dearer_are_taken_less_often():
    run = training(10e-3, {**CHEAP, Level.FULL: 6e-3}, dense_steps=50).end_dense()
    before = run.steps(5_000)
    run.cost[Level.FULL] *= 10
    after = run.steps(5_000)
    assert 0 < Counter(after)[Level.FULL] < Counter(before)[Level.FULL] / 4


def test_a_full_sample_comes_at_most_every_so_many_steps_however_cheap():
    run = training(1.0, CHEAP, dense_steps=10, sparse_every=7).end_dense()
    levels = run.steps(700)
    at = [k for k, level in enumerate(run.levels) if level is Level.FULL and k >= 10]
    assert len(at) == 100
    assert {k % 7 for k in at} == {0}
    assert set(levels) == {Level.FULL, Level.NORM}


@pytest.mark.parametrize("full", [0.03, 0.08, 0.15, 0.6])
@pytest.mark.parametrize("norm", [0.001, 0.02, 0.08])
def test_at_most_one_step_in_twenty_is_delayed_by_more_than_a_twentieth(full, norm):
    """Whatever the budget would allow: a sample of 8 % every tenth step keeps within 2 %, and is felt."""
    run = training(10e-3, {Level.FULL: full * 10e-3, Level.NORM: norm * 10e-3, Level.LOSS: 0.0}, dense_steps=10)
    levels = run.end_dense().steps(8_000)
    delayed = sum(run.cost[level] > DEAR * run.seconds for level in levels)
    assert delayed <= len(levels) // RARE + 1 < len(levels) / 20
    assert Counter(levels)[Level.FULL] > 0


def test_a_full_sample_that_is_not_felt_comes_as_often_as_the_budget_allows():
    run = training(10e-3, {Level.FULL: 0.04 * 10e-3, Level.NORM: 1e-5, Level.LOSS: 0.0}, dense_steps=10, sparse_every=5)
    run.end_dense().steps(5_000)
    assert Counter(run.steps(1_000))[Level.FULL] == 200


@pytest.mark.parametrize("cost", [CHEAP, COSTLY], ids=["cheap", "dear"])
def test_the_debt_of_the_dense_steps_is_paid_back(cost):
    run = training(10e-3, cost, dense_steps=200).end_dense()
    assert run.spent / run.now > 0.05
    # the dense steps' debt shrinks by at least (1 - DEBT_RATE) of the budget a second
    seconds = run.spent / (0.02 * (1 - DEBT_RATE))
    run.steps(int(seconds / run.seconds) + 1)
    assert run.spent <= 0.02 * run.now + cost[Level.FULL]


def test_while_in_debt_less_is_spent_than_afterwards():
    run = training(10e-3, CHEAP, dense_steps=500).end_dense()
    indebted = run.share_of(1_000)
    assert run.spent > 0.02 * run.now
    while run.spent > 0.02 * run.now:
        run.steps(500)
    assert indebted <= DEBT_RATE * 0.02
    assert indebted < run.share_of(5_000) <= 0.02


@pytest.mark.parametrize("seconds", [2e-3, 10e-3, 50e-3, 500e-3])
def test_full_samples_are_thinned_before_gradient_norms(seconds):
    run = training(seconds, {Level.FULL: 20e-3, Level.NORM: 1e-4, Level.LOSS: 0.0}, dense_steps=50).end_dense()
    levels = run.steps(10_000)
    count = Counter(levels)
    assert count[Level.NORM] >= 9 * count[Level.FULL] > 0


def test_where_full_samples_come_rarely_the_norm_still_comes_all_the_time():
    run = training(10e-3, {Level.FULL: 20e-3, Level.NORM: 5e-5, Level.LOSS: 0.0}, dense_steps=50).end_dense()
    levels = run.steps(8_000)
    count = Counter(levels)
    assert count[Level.FULL] < 80
    assert count[Level.NORM] > 4_000


@pytest.mark.parametrize("pause", [1e-3, 1.0])
def test_an_alert_during_the_dense_steps_changes_nothing(pause):
    quiet, alarmed = training(pause, dense_steps=40), training(pause, dense_steps=40)
    for count in range(40):
        alarmed.governor.alert(count)
        assert quiet.steps(1) == alarmed.steps(1) == [Level.FULL]
    assert quiet.steps(100) == alarmed.steps(100)


def test_an_alert_makes_the_next_steps_dense():
    run = training(10e-3, COSTLY, dense_steps=40).end_dense()
    run.governor.alert(len(run.levels))
    assert run.steps(ALERT_STEPS) == [Level.FULL] * ALERT_STEPS
    assert Level.FULL not in run.steps(20)


def test_a_training_that_swings_for_ever_is_dense_for_a_few_steps_in_two_hundred():
    run = training(10e-3, COSTLY, dense_steps=40).end_dense()
    start = len(run.levels)
    for _ in range(1_000):
        run.governor.alert(len(run.levels))
        run.steps(1)
    full = [k - start for k, level in enumerate(run.levels) if level is Level.FULL and k >= start]
    assert len(full) == 1_000 // ALERT_PAUSE * ALERT_STEPS
    assert {k // ALERT_PAUSE for k in full} == set(range(1_000 // ALERT_PAUSE))


def test_what_an_alert_has_cost_is_saved_up_again_before_the_next_sample():
    calm, alarmed = (training(10e-3, CHEAP, dense_steps=40).end_dense() for _ in range(2))
    alarmed.governor.alert(len(alarmed.levels))
    assert alarmed.steps(ALERT_STEPS) != calm.steps(ALERT_STEPS)
    for run in (calm, alarmed):
        run.steps(2_000)
    assert alarmed.spent == pytest.approx(calm.spent, rel=0.02)


@pytest.mark.parametrize("every", [1, 3, 50])
def test_a_fixed_cadence_takes_every_kth_step_whatever_it_costs(every):
    for seconds, cost in ((1e-4, COSTLY), (1.0, CHEAP)):
        run = training(seconds, cost, cadence=every)
        levels = run.steps(300)
        assert [k for k, level in enumerate(levels) if level is Level.FULL] == list(range(0, 300, every))
        assert set(levels) <= {Level.FULL, Level.NORM}


def test_an_alert_does_not_move_a_fixed_cadence():
    run = training(cadence=50)
    for _ in range(200):
        run.governor.alert(len(run.levels))
        run.steps(1)
    assert [k for k, level in enumerate(run.levels) if level is Level.FULL] == [0, 50, 100, 150]
