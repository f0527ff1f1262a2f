from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.loss_scale import loss_scale
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, loss_scale)
explains = partial(check_explains, loss_scale)

SUM = observed("summed_loss", 0, loss_kind="mse", rows=256)
LARGE = observed("violent_update", 0, "fc", update_lg=0.2)
END = observed("loss_nonfinite", 3)
SGD = facts(optimizers=(optimizer("SGD"),))


def test_a_sum_that_trains_is_fine() -> None:
    silent(run(SUM, facts=SGD))


def test_adam_divides_the_scale_out() -> None:
    silent(run(SUM, LARGE, END, facts=facts(optimizers=(optimizer("AdamW"),))))


def test_a_sum_over_a_few_samples_is_no_cause() -> None:
    silent(run(observed("summed_loss", 0, rows=4), LARGE, END, facts=SGD))


def test_a_sum_over_many_samples_that_runs_away() -> None:
    explains(run(SUM, LARGE, END, facts=SGD), step=0, failure="exploding_gradients")


def test_backward_passes_that_were_not_divided_and_ran_away() -> None:
    added = observed("summed_loss", 0, loss_kind="nll", rows=16, accumulated=True)
    claim = explains(run(added, LARGE, END, facts=SGD), step=0)
    assert claim.summary == "the gradients of 16 backward passes are added up and nothing is divided by 16"


def dead(share: float, rise: float) -> SemanticEvent:
    return observed("dead_units", 3, "relu", share=share, rise=rise, at_start=share - rise)


def test_units_that_were_dead_before_are_not_the_sums_doing() -> None:
    silent(run(SUM, LARGE, dead(0.6, 0.15), facts=SGD))
    silent(run(SUM, LARGE, dead(0.45, 0.4), facts=SGD))


def test_a_sum_that_kills_most_units_of_a_layer() -> None:
    explains(run(SUM, LARGE, dead(0.6, 0.4), facts=SGD), step=0, failure="optimizer_instability")


def test_a_sum_after_which_the_output_is_the_same_for_all() -> None:
    explains(run(SUM, LARGE, observed("constant_output", 50, "fc", spread_lg=-20.0), facts=SGD), step=0)
