from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.bootstrap_divergence import bootstrap_divergence
from neuraldbg.testing import check_explains, check_silent, facts, observed, run

silent = partial(check_silent, bootstrap_divergence)
explains = partial(check_explains, bootstrap_divergence)

MSE = facts(loss_kind="mse")


def grown(step: int = 130, cosine: float = 0.98) -> SemanticEvent:
    return observed("exploding_gradient", step, growth_lg=2.5, cosine=cosine)


END = observed("loss_diverging", 150, growth_lg=3.0)


def test_a_growing_gradient_with_a_bounded_loss_is_healthy() -> None:
    silent(run(grown(), facts=MSE))


def test_an_overshoot_turns_its_gradient_round() -> None:
    silent(run(grown(cosine=-0.4), END, facts=MSE))


def test_a_runaway_from_the_first_step_on_has_no_quiet_start() -> None:
    silent(run(grown(step=1), END, facts=MSE))


def test_large_updates_before_the_gradient_are_the_rates_doing() -> None:
    silent(run(observed("violent_update", 100, "fc", update_lg=-0.2), grown(), END, facts=MSE))


def test_a_classifier_has_no_targets_of_its_own() -> None:
    silent(run(grown(), END, facts=facts(loss_kind="nll")))


def test_targets_that_run_away_after_a_quiet_start() -> None:
    explains(run(grown(), END, facts=MSE), step=130, failure="exploding_gradients")


def norms(growth: float) -> dict[str, list[float]]:
    """The gradient grows evenly, by so much until step 100."""
    return {"gradient_norm": [growth ** (k / 100) for k in range(131)]}


def test_a_gradient_that_had_not_grown_tenfold_before_the_updates_did_follows_them() -> None:
    late = observed("violent_update", 100, "fc", update_lg=-0.2)
    silent(run(late, grown(), END, facts=MSE, series=norms(9.0)))


def test_large_updates_in_the_midst_of_a_runaway_are_part_of_it() -> None:
    late = observed("violent_update", 100, "fc", update_lg=-0.2)
    explains(run(late, grown(), END, facts=MSE, series=norms(12.0)), step=130)


BURST = observed("loss_nonfinite", 22, value="inf", growth_lg=8.0, cosine=0.97)


def test_a_value_that_is_not_finite_without_a_growing_gradient_is_no_runaway() -> None:
    silent(run(observed("loss_nonfinite", 22, value="nan", growth_lg=0.5, cosine=0.97), facts=MSE))
    silent(run(observed("loss_nonfinite", 5, value="inf", growth_lg=8.0, cosine=0.97), facts=MSE))


def test_a_runaway_that_ends_before_its_trend_can_be_told() -> None:
    explains(run(BURST, facts=MSE), step=22, failure="exploding_gradients")
