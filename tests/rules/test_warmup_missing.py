from __future__ import annotations

from functools import partial

from neuraldbg.rules.warmup_missing import warmup_missing
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, optimizer, run

silent = partial(check_silent, warmup_missing)
explains = partial(check_explains, warmup_missing)

POST = facts(module("norm", 1), structure=("post_norm", "attention"), optimizers=(optimizer("Adam"),))
PRE = facts(module("norm", 1), structure=("norm", "attention"), optimizers=(optimizer("Adam"),))
LARGE = observed("violent_update", 0, "emb", update_lg=-0.4, at_start=True)
FLAT = observed("constant_output", 2, "norm", spread_lg=-7.0)
STUCK = observed("loss_plateau", 3, skill=1.0)


def test_a_pre_norm_model_needs_no_warm_up() -> None:
    silent(run(LARGE, FLAT, STUCK, facts=PRE))


def test_sgd_has_no_first_step_at_full_rate() -> None:
    post = facts(structure=("post_norm",), optimizers=(optimizer("SGD"),))
    silent(run(LARGE, FLAT, STUCK, facts=post))


def test_a_rate_that_ramps_up_is_a_warm_up() -> None:
    ramp = observed("violent_update", 0, "emb", update_lg=-0.4, ramping=True)
    silent(run(ramp, FLAT, STUCK, facts=POST))


def test_a_post_norm_model_that_learns_is_fine() -> None:
    silent(run(LARGE, facts=POST))


def test_a_post_norm_model_thrown_off_in_its_first_steps() -> None:
    explains(run(LARGE, FLAT, STUCK, facts=POST), step=0, failure="optimizer_instability")
