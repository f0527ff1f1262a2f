from __future__ import annotations

from functools import partial

from neuraldbg.rules.recurrent_explosion import recurrent_explosion
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, recurrent_explosion)
explains = partial(check_explains, recurrent_explosion)

GROWTH = observed("recurrent_growth", 0, "rnn", rms_lg=14.0)


def test_a_growing_state_that_trains_is_fine() -> None:
    silent(run(GROWTH))


def test_a_blow_up_without_a_growing_state_has_another_cause() -> None:
    silent(run(observed("nonfinite_activation", 1, "rnn", inputs_finite=True)))


def test_a_growing_state_and_weights_that_are_not_finite() -> None:
    explains(run(GROWTH, observed("loss_nonfinite", 1)), layer="rnn", step=0, failure="exploding_gradients")
