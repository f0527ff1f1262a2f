from __future__ import annotations

import copy
import math
from functools import partial

import pytest

from neuraldbg.detectors import loss_trend
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import make
from neuraldbg.testing import feed, loss_stats, record

found = partial(feed, loss_trend, pure=False)
FACTORS = pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])


def losses(*values: float | None, chance: float | None = None, cosine: float | None = None) -> list[StepRecord]:
    return [
        record(k, loss=v, cosine=cosine, loss_stats=loss_stats(value=v, chance=chance) if chance else None)
        for k, v in enumerate(values)
    ]


def wave(k: int, noise: float) -> float:
    return 1 + noise * math.sin(2.3 * k)


def learning(count: int, noise: float = 0.2) -> list[float]:
    return [2.3 * (0.05 + 0.95 * 0.97**k) * wave(k, noise) for k in range(count)]


def flat(count: int, level: float = 2.3, noise: float = 0.02) -> list[float]:
    return [level * wave(k, noise) for k in range(count)]


@FACTORS
def test_a_loss_that_falls_is_healthy(factor: float) -> None:
    assert found(losses(*[factor * v for v in learning(300)])) == []
    assert found(losses(*learning(300), chance=2.3)) == []


def test_a_loss_that_never_was_a_number_has_no_trend() -> None:
    assert found(losses(*[math.nan] * 100)) == [] and found(losses(*[None] * 100)) == []


def test_fewer_than_thirty_losses_say_nothing() -> None:
    assert found(losses(*flat(29))) == []


# stuck


def test_a_low_flat_loss_is_the_end_of_learning() -> None:
    assert found(losses(*learning(100), *flat(300, level=0.12))) == []


def test_label_smoothing_keeps_a_healthy_loss_high_but_below_chance() -> None:
    assert found(losses(*[2.3 * (0.8 + 0.2 * 0.95**k) * wave(k, 0.01) for k in range(200)], chance=2.3)) == []


def test_a_loss_at_chance_that_still_falls_is_not_stuck() -> None:
    assert found(losses(*[4.0 - 0.02 * k for k in range(80)], chance=2.3)) == []


@FACTORS
def test_a_flat_loss_at_chance_is_stuck(factor: float) -> None:
    (event,) = found(losses(*[factor * v for v in flat(200)], chance=2.3 * factor))
    assert (event.symptom, event.layer_name, event.step) == ("loss_plateau", None, 0)
    assert event.metadata["skill"] == pytest.approx(1.0, abs=0.05)


def test_a_flat_loss_of_unknown_chance_is_stuck_when_nothing_was_gained() -> None:
    (event,) = found(losses(*flat(200)))
    assert event.metadata["skill"] is None and event.metadata["tail_head"] == pytest.approx(1.0, abs=0.05)


def test_falling_towards_chance_from_above_is_no_learning() -> None:
    (event,) = found(losses(*[2.3 * (1 + 5 * 0.985**k) for k in range(200)], chance=2.3))
    assert event.symptom == "loss_plateau" and event.step > 50


def test_a_plateau_is_dated_from_where_the_level_was_reached() -> None:
    (event,) = found(losses(*flat(60, level=9.0), *flat(240), chance=2.3))
    assert 45 <= event.step <= 85


# growing


def test_a_spike_at_the_end_is_no_divergence() -> None:
    assert found(losses(*learning(200), 50.0, 60.0)) == []


def test_a_loss_that_grows_from_nearly_zero_but_stays_below_chance_overfits_at_most() -> None:
    assert found(losses(*[1e-4 * wave(k, 0.1) for k in range(100)], *[0.5] * 20, chance=2.3)) == []


@FACTORS
def test_a_loss_that_ends_ten_times_its_best_diverges_from_where_it_left_it(factor: float) -> None:
    growing = [0.2 * 1.1**k for k in range(60)]
    (event,) = found(losses(*[factor * v for v in [*learning(100), *growing]]))
    assert event.symptom == "loss_diverging" and 100 <= event.step <= 112
    assert event.metadata["growth_lg"] > 1.0


def test_a_loss_that_diverges_over_chance_says_so() -> None:
    (event,) = found(losses(*flat(60), *[2.3 * 1.2**k for k in range(40)], chance=2.3))
    assert event.symptom == "loss_diverging" and event.metadata["skill"] > 1.5


# swinging


def test_a_loss_that_swings_while_it_falls_is_small_batches() -> None:
    assert found(losses(*[0.985**k * (1.9 if k % 2 else 0.1) for k in range(200)])) == []
    assert found(losses(*[0.985**k * wave(k, 0.95) for k in range(200)])) == []


def test_small_swings_are_noise() -> None:
    symptoms = [e.symptom for e in found(losses(*[1.2 if k % 2 else 0.8 for k in range(200)]))]
    assert "loss_oscillating" not in symptoms


def test_a_loss_that_swings_without_falling_oscillates() -> None:
    swinging = [1.9 if k % 2 else 0.1 for k in range(300)]
    events = found(losses(*swinging, chance=50.0))
    (event,) = [e for e in events if e.symptom == "loss_oscillating"]
    assert event.step == 100 and event.metadata["flips"] > 0.9 and event.metadata["swing"] > 0.5


# too slow


def creeping(count: int) -> list[float]:
    return [2.3 * 0.998**k for k in range(count)]


def test_ninety_nine_small_steps_are_a_start() -> None:
    assert found(losses(*creeping(99), chance=9.9)) == []


def test_a_loss_that_also_rises_now_and_then_meets_noise() -> None:
    rough = [v * (1.01 if k % 10 == 0 else 1.0) for k, v in enumerate(creeping(200))]
    assert found(losses(*rough, chance=9.9)) == []


def test_a_loss_that_fell_to_a_fifth_was_not_slow() -> None:
    assert found(losses(*[2.3 * 0.992**k for k in range(200)], chance=9.9)) == []


def test_steps_that_turn_are_not_too_small() -> None:
    assert found(losses(*creeping(200), chance=9.9, cosine=0.5)) == []


@FACTORS
def test_a_loss_that_creeps_down_at_every_step_in_one_direction_is_too_slow(factor: float) -> None:
    (event,) = found(losses(*[factor * v for v in creeping(200)], cosine=0.99))
    assert (event.symptom, event.step) == ("slow_progress", 0)
    assert event.metadata["monotone"] == 1.0 and event.metadata["cosine"] == pytest.approx(0.99)
    assert 0.6 < event.metadata["tail_head"] < 0.8


# the state


def test_asking_for_the_trend_changes_nothing() -> None:
    state = loss_trend.initial(make())
    for one in losses(*flat(100), chance=2.3):
        state, events = loss_trend.step(state, one, RunFacts())
        assert events == []
    before = copy.deepcopy(state)
    assert loss_trend.finish(state, RunFacts()) == loss_trend.finish(state, RunFacts())
    assert state == before


def test_a_long_run_is_thinned_in_the_middle_and_keeps_its_ends() -> None:
    state = loss_trend.initial(make())
    for k in range(10_000):
        state, _ = loss_trend.step(state, record(k, loss=1.0 / (k + 1), cosine=0.5), RunFacts())
    kept = [s for s, _ in state.losses]
    assert len(kept) <= 2000 and len(state.cosines) <= 2000
    assert kept[:30] == list(range(30)) and kept[-50:] == list(range(9950, 10_000)) and kept == sorted(kept)


def test_thirty_losses_are_enough() -> None:
    assert len(found(losses(*flat(30)))) == 1


def test_a_tail_just_below_the_limit_of_a_plateau_is_progress() -> None:
    assert found(losses(*[1.0] * 20, *[0.94] * 180)) == []
    assert len(found(losses(*[1.0] * 20, *[0.96] * 180))) == 1


@pytest.mark.parametrize(("times", "told"), [(9.0, False), (11.0, True)])
def test_a_divergence_is_ten_times_the_best_level(times: float, told: bool) -> None:
    symptoms = [e.symptom for e in found(losses(*[1.0] * 60, *[times] * 30))]
    assert ("loss_diverging" in symptoms) is told


@pytest.mark.parametrize(("rate", "told"), [(0.9945, 1), (0.992, 0)])
def test_too_slow_leaves_a_third_of_the_loss(rate: float, told: int) -> None:
    assert len(found(losses(*[rate**k for k in range(200)], chance=9.9))) == told
