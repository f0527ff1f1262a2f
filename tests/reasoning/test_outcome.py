"""What counts as harm to a training."""

from __future__ import annotations

from neuraldbg.events import observed, recovered
from neuraldbg.reasoning.outcome import (
    adaptive,
    before_training,
    grew_before,
    lasting,
    late_start,
    not_learning,
)
from neuraldbg.testing import facts, optimizer, run


def skill(*values: float) -> bool:
    return not_learning(run(series={"skill": values}))


def test_a_loss_that_falls_below_chance_is_learning() -> None:
    assert not skill(*(0.97**i for i in range(100)))


def test_a_loss_above_chance_that_is_still_falling_may_be_learning() -> None:
    assert not skill(*(2.0 - 0.009 * i for i in range(100)))


def test_a_loss_that_fell_to_chance_and_stays_there_is_not() -> None:
    assert skill(*(1.5, 1.3, 1.1), *[1.0] * 100)


def test_an_unknown_chance_says_nothing() -> None:
    assert not not_learning(run(series={"loss": [1.0] * 50}))


def test_a_plateau_counts_until_it_ends() -> None:
    plateau = observed("loss_plateau", 3, skill=1.0)
    assert not_learning(run(plateau))
    assert not not_learning(run(plateau, recovered(plateau, 50)))


def test_a_state_that_another_layer_left_still_lasts() -> None:
    here, there = observed("dead_units", 1, "a"), observed("dead_units", 1, "b")
    assert list(lasting(run(here, there, recovered(there, 9)), "dead_units")) == [here]


def test_growth_in_the_same_step_is_not_before() -> None:
    bad = observed("nonfinite_activation", 5, "exp")
    assert not grew_before(run(observed("exploding_gradient", 5), bad), bad)
    assert grew_before(run(observed("exploding_gradient", 4), bad), bad)


def test_one_optimizer_that_does_not_adapt_is_enough_for_the_scale_to_matter() -> None:
    assert adaptive(run(facts=facts(optimizers=(optimizer("AdamW"), optimizer("RMSprop")))))
    assert not adaptive(run(facts=facts(optimizers=(optimizer("AdamW"), optimizer("SGD")))))
    assert not adaptive(run())


def test_an_update_is_no_state_from_before_the_training() -> None:
    assert not before_training(observed("violent_update", 0, at_start=True))
    assert not before_training(observed("dead_units", 4, "relu", share=0.6, at_start=0.05))
    assert before_training(observed("dead_units", 1, "relu", share=1.0, at_start=1.0))
    assert before_training(observed("saturation", 1, "tanh", share=0.9, at_start=True))


def test_a_start_is_late_when_a_third_of_the_run_went_by_above_chance() -> None:
    def late(*values: float) -> bool:
        return late_start(run(series={"skill": values}))

    assert not late(*[1.0] * 29, *[0.5] * 71)
    assert not late(*[1.0] * 9)
    assert not late_start(run())
    assert late(*[1.0] * 30, *[0.5] * 70)
