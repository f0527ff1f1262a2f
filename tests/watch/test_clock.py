"""The step clock alone: which signals end a step."""

from __future__ import annotations

import pytest

from neuraldbg.watch.clock import MICRO_BATCHES, ROUNDS, StepClock


def still():
    return False


def moving():
    return True


def forward(clock):
    if clock.due(still):
        clock.close()
    clock.forwards += 1


def cycle(clock, *optimizers, micro_batches=1):
    for _ in range(micro_batches):
        forward(clock)
        clock.backwards += 1
    for k in optimizers:
        clock.optimizer(k)


def test_nothing_is_no_step():
    clock = StepClock()
    assert clock.empty
    assert not clock.due(moving)


def test_forwards_alone_end_no_step():
    clock = StepClock()
    for _ in range(100):
        forward(clock)
    assert clock.step == 0
    assert not clock.due(moving)


def test_a_forward_backward_and_optimizer_step_is_a_step():
    clock = StepClock()
    for n in range(5):
        cycle(clock, 0)
        assert clock.step == n
    assert clock.due(still)


def test_micro_batches_are_one_step():
    clock = StepClock()
    for n in range(5):
        cycle(clock, 0, micro_batches=8)
        assert clock.step == n
        assert clock.backwards == 8


def test_a_round_of_two_optimizers_is_one_step():
    clock = StepClock()
    cycle(clock, 0)
    cycle(clock, 1)  # the first step cannot know that another one follows
    clock.step = 0
    for n in range(5):
        cycle(clock, 0)
        cycle(clock, 1)
        assert clock.step == n + 1


def test_several_steps_of_a_critic_before_one_of_the_generator_are_one_step():
    clock = StepClock()
    clock.known = {0, 1}
    for n in range(4):
        for _ in range(5):
            cycle(clock, 0)
        cycle(clock, 1)
        assert clock.step == n
        assert clock.rounds == {0: 5, 1: 1}


def test_an_optimizer_that_is_used_no_more_holds_no_step_open_for_ever():
    clock = StepClock()
    clock.known = {0, 1}
    for _ in range(ROUNDS):
        cycle(clock, 0)
    assert clock.due(still)
    assert clock.step == 0
    cycle(clock, 0)
    cycle(clock, 0)
    assert clock.step == 2


def test_told_losses_end_steps_whatever_else_happens():
    clock = StepClock()
    clock.told = True
    for n in range(4):
        for _ in range(3):
            cycle(clock, 0)
        assert clock.step == n
        clock.loss_told = True
    assert clock.due(still)


def test_a_step_set_by_hand_is_never_over_by_itself_and_never_counted_on():
    clock = StepClock()
    clock.explicit, clock.step = True, 7
    for _ in range(5):
        cycle(clock, 0)
        assert not clock.due(moving)
    clock.close()
    assert clock.step == 7


def test_without_an_optimizer_a_move_of_the_weights_ends_a_step():
    clock = StepClock()
    cycle(clock)
    assert not clock.due(still)
    assert clock.due(moving)


def test_without_any_update_each_backward_pass_counts_once_it_is_plain_that_none_comes():
    clock = StepClock()
    for _ in range(MICRO_BATCHES):
        assert not clock.due(still)
        cycle(clock)
    assert clock.due(still)


def test_weights_are_not_looked_at_once_an_optimizer_was_seen():
    clock = StepClock()
    cycle(clock, 0)
    clock.close()
    cycle(clock)

    def asked() -> bool:
        pytest.fail("the weights were compared though an optimizer is known")

    assert not clock.due(asked)


def test_an_open_step_that_has_closed_is_empty():
    clock = StepClock()
    cycle(clock, 0)
    assert clock.stepped
    clock.close()
    assert clock.empty
    assert not clock.stepped
    assert clock.step == 1
