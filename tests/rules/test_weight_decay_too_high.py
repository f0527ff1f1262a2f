from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.record import OptimizerFacts
from neuraldbg.rules.weight_decay_too_high import weight_decay_too_high
from neuraldbg.run import Run
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, weight_decay_too_high)
explains = partial(check_explains, weight_decay_too_high)

SHRINK = observed("weights_shrink", 10, decay_lg=-1.2)
STUCK = observed("loss_plateau", 20, skill=1.0)
HEAVY = optimizer("AdamW", 0.01, weight_decay=2.0)  # 2 % of the weights at each step


def held(*events: SemanticEvent, by: OptimizerFacts = HEAVY, update: float = 0.03) -> Run:
    """Weights that decay holds where they are: they do not shrink, and each update is of this size."""
    return run(*events, facts=facts(optimizers=(by,)), series={"update": [update] * 60})


def test_weights_may_shrink_while_the_loss_falls() -> None:
    silent(run(SHRINK, series={"skill": [0.97**i for i in range(100)]}))


def test_without_weight_decay_something_else_shrinks_them() -> None:
    silent(run(SHRINK, STUCK, facts=facts(optimizers=(optimizer("SGD"),))))


def test_decay_may_dominate_a_loss_that_falls() -> None:
    silent(held())


def test_a_usual_decay_beside_a_stuck_loss_is_not_its_cause() -> None:
    silent(held(STUCK, by=optimizer("AdamW", 1e-3, weight_decay=0.01), update=1e-5))


def test_updates_more_than_twice_the_decay_are_the_gradients() -> None:
    silent(held(STUCK, update=0.041))


def test_decay_inside_an_adaptive_gradient_takes_no_share_of_the_weights() -> None:
    silent(held(STUCK, by=optimizer("Adam", 0.01, weight_decay=2.0)))


def test_a_violent_update_is_the_rate_and_not_the_decay() -> None:
    silent(held(STUCK, observed("violent_update", 3, "fc", update_lg=0.5)))


def test_without_measured_updates_nothing_says_what_decay_is_of_them() -> None:
    silent(run(STUCK, facts=facts(optimizers=(HEAVY,))))
    silent(held(STUCK, update=0.0))


def test_a_plateau_that_was_left_is_none() -> None:
    silent(held(STUCK, recovered(STUCK, 50)))


def test_shrinking_weights_and_a_loss_that_does_not_fall() -> None:
    decayed = facts(optimizers=(optimizer("SGD", weight_decay=1.0),))
    explains(run(SHRINK, STUCK, facts=decayed), step=10, failure="optimizer_instability")


def test_decay_that_is_most_of_every_update_and_a_loss_that_does_not_fall() -> None:
    claim = explains(held(STUCK), step=0, failure="optimizer_instability")
    assert "2.0%" in claim.summary and "3.0%" in claim.summary


def test_decay_just_above_half_of_the_update_dominates() -> None:
    explains(held(STUCK, update=0.039), step=0)


def test_one_of_several_optimizers_is_enough() -> None:
    both = facts(optimizers=(optimizer("Adam", 1e-3), optimizer("SGD", 0.1, weight_decay=0.1)))
    explains(run(observed("loss_diverging", 40), facts=both, series={"update": [0.012] * 60}), step=0)


def balance(inside: bool = False, ratio: float = 1.5) -> SemanticEvent:
    return observed("decay_outweighs", 15, ratio=ratio, taken=None if inside else 0.03, inside=inside)


def test_a_balance_far_below_chance_is_learning_all_the_same() -> None:
    silent(run(balance(), series={"skill": [0.2] * 60}))


def test_a_balance_under_violent_updates_is_the_rates() -> None:
    silent(run(balance(), observed("violent_update", 3, update_lg=0.1), series={"skill": [1.0] * 60}))


def test_decay_inside_the_gradient_of_a_loss_that_falls_is_usual_late_in_a_training() -> None:
    silent(run(balance(inside=True), series={"skill": [0.97**i for i in range(100)]}))


def test_a_balance_that_holds_the_loss_far_from_zero_began_with_the_run() -> None:
    claim = explains(run(balance(), series={"skill": [0.5] * 60}), step=0, failure="optimizer_instability")
    assert "1.5 times" in claim.summary


def test_a_balance_where_chance_is_unknown() -> None:
    explains(run(balance()), step=0)


def test_decay_inside_the_gradient_and_a_loss_that_does_not_fall() -> None:
    explains(run(balance(inside=True), STUCK), step=15)
