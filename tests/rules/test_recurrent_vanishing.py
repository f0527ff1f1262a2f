from __future__ import annotations

from functools import partial

from neuraldbg.rules.recurrent_vanishing import recurrent_vanishing
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, recurrent_vanishing)
explains = partial(check_explains, recurrent_vanishing)

DECAY = observed("recurrent_decay", 0, "rnn", gain=0.1)
STUCK = observed("loss_plateau", 0, skill=1.02)


def test_a_task_that_needs_no_memory_learns_all_the_same() -> None:
    silent(run(DECAY, series={"skill": [0.97**i for i in range(100)]}))


def test_a_loss_at_chance_with_a_usual_recurrent_matrix_is_another_cause() -> None:
    silent(run(STUCK))


def test_a_recurrence_that_forgets_and_a_loss_that_stays_at_chance() -> None:
    explains(run(DECAY, STUCK), layer="rnn", step=0, failure="vanishing_gradients")


def test_the_fewer_it_keeps_the_stronger_the_claim() -> None:
    (weak,) = recurrent_vanishing(run(observed("recurrent_decay", 0, "rnn", gain=0.39), STUCK))
    (strong,) = recurrent_vanishing(run(DECAY, STUCK))
    assert weak.strength is not None and strong.strength is not None and 0 < weak.strength < strong.strength
