from __future__ import annotations

from functools import partial

from neuraldbg.rules.eval_mode_during_training import eval_mode_during_training
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, eval_mode_during_training)
explains = partial(check_explains, eval_mode_during_training)

MODE = observed("eval_mode", 0, modules=3)


def test_eval_mode_of_a_model_that_learns_is_only_noted() -> None:
    silent(run(MODE, series={"skill": [0.97**i for i in range(100)]}))


def test_eval_mode_of_a_model_that_does_not_learn() -> None:
    explains(run(MODE, observed("loss_plateau", 3, skill=1.0)), step=0, failure="optimizer_instability")


def test_norms_in_eval_mode_whose_statistics_fit_do_their_work() -> None:
    mode = observed("eval_mode", 0, modules=2, rms_lg=0.4)
    silent(run(mode, series={"skill": [0.97**i for i in range(100)]}))


def test_norms_in_eval_mode_that_let_raw_inputs_through() -> None:
    mode = observed("eval_mode", 0, modules=2, rms_lg=2.1)
    explains(run(mode, series={"skill": [max(0.7, 0.97**i) for i in range(100)]}), step=0)
