from __future__ import annotations

import math
from functools import partial

import pytest

from neuraldbg.detectors import loss_spike
from neuraldbg.record import StepRecord
from neuraldbg.testing import feed, loss_stats, record

found = partial(feed, loss_spike)


def losses(*values: float | None, chance: float | None = None) -> list[StepRecord]:
    return [
        record(k, loss=v, loss_stats=loss_stats(value=v, chance=chance) if chance else None)
        for k, v in enumerate(values)
    ]


def falling(count: int, level: float = 1.0, noise: float = 0.1) -> list[float]:
    return [level * 0.99**k * (1 + noise * math.sin(2.3 * k)) for k in range(count)]


def test_a_noisy_loss_that_falls_has_no_spikes() -> None:
    assert found(losses(*falling(300, noise=0.5))) == []


def test_a_jump_to_less_than_three_times_the_loss_is_none() -> None:
    assert found(losses(*[1.0] * 20, 2.9, *[1.0] * 20)) == []


def test_a_large_jump_of_a_loss_that_jumps_all_the_time_is_noise() -> None:
    assert found(losses(*[1.0, 9.0, 0.2, 5.0, 0.1] * 12)) == []


def test_a_jump_within_the_first_steps_is_the_start() -> None:
    assert found(losses(*[1.0] * 10, 50.0)) == []


def test_a_loss_below_zero_is_judged_by_how_far_it_moves() -> None:
    """A negative log likelihood passes zero on its way."""
    assert found(losses(*[2.0 - 0.1 * k for k in range(60)])) == []
    assert found(losses(*[-2.0 + 0.01 * math.sin(k) for k in range(20)], -1.96)) == []


def test_losses_that_are_not_numbers_are_left_to_others() -> None:
    assert found(losses(*[1.0] * 20, math.nan, math.inf, None, *[1.0] * 5)) == []


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])
def test_a_spike_is_told_at_its_step_with_its_height(factor: float) -> None:
    (event,) = found(losses(*[factor * v for v in [*falling(50), 8.0, *falling(30, level=0.6)]]))
    assert (event.symptom, event.layer_name, event.step) == ("loss_spike", None, 50)
    assert event.metadata["height"] == pytest.approx(8.0 * factor)
    assert event.metadata["decades"] == pytest.approx(math.log10(8.0 / event.metadata["before"] * factor))
    assert event.metadata["over_chance"] is None and event.metadata["recovered"] is None


def test_a_spike_is_measured_against_chance_where_that_is_known() -> None:
    (event,) = found(losses(*[0.1] * 20, 5.0, chance=2.0))
    assert event.metadata["over_chance"] == pytest.approx(2.5)
    assert event.metadata["before_over_chance"] == pytest.approx(0.05)


def test_a_spike_from_below_zero_has_no_decades() -> None:
    (event,) = found(losses(*[-2.0 + 0.1 * math.sin(k) for k in range(20)], 40.0))
    assert event.metadata["decades"] is None and event.metadata["height"] == 40.0


def test_what_follows_a_spike_closely_is_part_of_it_and_a_later_one_is_told_again() -> None:
    assert [e.step for e in found(losses(*[1.0] * 20, 9.0, 9.0, 1.0, 9.0, *[1.0] * 20))] == [20]
    assert [e.step for e in found(losses(*[1.0] * 20, 9.0, *[1.0] * 20, 9.0, *[1.0] * 20))] == [20, 41]


def test_just_beyond_three_times_the_loss_it_is_a_spike() -> None:
    assert len(found(losses(*[1.0] * 11, 3.1))) == 1


def test_tasks_that_take_turns_have_losses_that_alternate() -> None:
    assert found(losses(*[(1.0, 4.0)[k % 2] * (1 + 0.02 * math.sin(2.3 * k)) for k in range(100)])) == []
    assert found(losses(*[(1.0, 1.1, 9.0)[k % 3] * (1 + 0.02 * math.sin(2.3 * k)) for k in range(100)])) == []


@pytest.mark.parametrize(("height", "told"), [(16.0, 0), (17.5, 1)])
def test_a_spike_is_ten_robust_deviations_high(height: float, told: int) -> None:
    """The median of these is 2 and their median deviation 1."""
    noisy = [1.0, 3.0, 1.0, 3.0, 1.0, 2.0, 3.0, 1.0, 3.0, 1.0, 3.0]
    assert len(found(losses(*noisy, height))) == told


def test_at_most_twenty_are_told() -> None:
    assert len(found(losses(*([1.0] * 20 + [50.0]) * 30))) == 20


def batches(last: float) -> list[StepRecord]:
    """A loss of 0.3 at a chance of 1; the last batch's loss is 3 and its own chance is `last`."""
    return [
        record(k, loss=v, loss_stats=loss_stats(value=v, chance=c))
        for k, (v, c) in enumerate([*[(0.3 + 0.001 * (k % 3), 1.0) for k in range(20)], (3.0, last)])
    ]


def test_a_batch_whose_few_targets_are_alike_is_measured_by_the_usual_chance() -> None:
    (event,) = found(batches(0.1))
    assert event.metadata["over_chance"] == pytest.approx(3.0)


def test_a_batch_whose_targets_differ_more_is_measured_by_its_own_chance() -> None:
    (event,) = found(batches(2.0))
    assert event.metadata["over_chance"] == pytest.approx(1.5)
