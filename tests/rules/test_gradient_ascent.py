from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.gradient_ascent import gradient_ascent
from neuraldbg.testing import check_explains, check_silent, facts, observed, optimizer, run

silent = partial(check_silent, gradient_ascent)
explains = partial(check_explains, gradient_ascent)

GROWN = observed("loss_diverging", 5, growth_lg=1.5, cosine=0.9)
ENTROPY = facts(loss_kind="nll", optimizers=(optimizer(),))
RISING = [1.0 * 1.05**i for i in range(60)]
NEGATED = observed("negated_loss", 0, loss_kind="mse")
LATER = observed("negated_loss", 30, loss_kind="mse")


def test_a_quiet_start_speaks_against_a_wrong_sign() -> None:
    late = [1.0 - 0.01 * i for i in range(30)] + [0.7 * 1.1**i for i in range(60)]
    silent(run(GROWN, facts=ENTROPY, series={"skill": late}))


def test_an_overshoot_turns_its_gradient_round() -> None:
    silent(run(observed("loss_diverging", 5, cosine=-0.5), facts=ENTROPY, series={"skill": RISING}))


def test_an_adversary_maximises_on_purpose() -> None:
    two = facts(optimizers=(optimizer(), optimizer()))
    silent(run(GROWN, facts=two, series={"skill": RISING}))


def test_a_negated_loss_that_falls_is_undone_elsewhere() -> None:
    """A reversed gradient or a negated update: the training minimises all the same."""
    silent(run(NEGATED, facts=ENTROPY, series={"skill": [0.97**i for i in range(60)]}))


def test_a_negated_loss_that_stays_as_it_was_hurts_nothing() -> None:
    silent(run(NEGATED, facts=ENTROPY, series={"skill": [1.0] * 60}))
    silent(run(NEGATED, facts=ENTROPY, series={"skill": [1.0] * 30 + [1.4] * 30}))


def test_a_negated_loss_whose_outcome_is_unknown_is_nothing() -> None:
    silent(run(NEGATED, facts=ENTROPY))


def test_a_plateau_that_ended_in_harm_before_the_sign_turned_is_not_its_doing() -> None:
    before = observed("loss_plateau", 10, skill=1.0)
    silent(run(before, LATER, facts=ENTROPY, series={"skill": [1.0] * 60}))


def test_an_adversary_beside_another_optimizer_negates_on_purpose() -> None:
    """The generator of the first adversarial networks maximised the discriminator's loss."""
    two = facts(optimizers=(optimizer(), optimizer()))
    silent(run(NEGATED, GROWN, facts=two, series={"skill": RISING}))


def test_a_loss_that_rises_from_the_first_step_on() -> None:
    explains(run(GROWN, facts=ENTROPY, series={"skill": RISING}), step=0, failure="optimizer_instability")


def test_a_negated_loss_that_rises_needs_no_steady_rise_and_no_cosine() -> None:
    noisy = [1.0 + 0.02 * i + 0.3 * (i % 2) for i in range(60)]
    claim = explains(run(NEGATED, facts=ENTROPY, series={"skill": noisy}), step=0, failure="optimizer_instability")
    assert claim.exact
    assert "mse" in claim.summary


def test_a_negated_loss_that_ends_in_nothing_finite() -> None:
    bad = observed("loss_nonfinite", 20)
    claim = explains(run(NEGATED, bad, facts=ENTROPY), step=0)
    assert claim.evidence_for == (NEGATED, bad)


def test_a_sign_that_turns_in_the_middle_is_measured_against_the_steps_before_it() -> None:
    learnt_then_lost = [0.95**i for i in range(30)] + [0.3 * 1.05**i for i in range(30)]
    explains(run(LATER, facts=ENTROPY, series={"skill": learnt_then_lost}), step=30)


ALONE = facts(optimizers=(optimizer(),))


def burst(cosine: float = 0.99) -> SemanticEvent:
    return observed("exploding_gradient", 11, growth_lg=2.0, cosine=cosine)


def falls(to: float, first: float = 0.5) -> dict[str, list[float]]:
    return {"loss": [first] * 10 + [first + (to - first) * k / 100 for k in range(101)] + [to] * 20}


def test_a_log_likelihood_that_comes_to_rest_below_zero_is_healthy() -> None:
    silent(run(burst(), facts=ALONE, series=falls(-90.0)))
    silent(run(burst(), facts=ALONE, series=falls(-4000.0, first=50.0)))


def test_a_gradient_that_turns_round_is_a_scale_that_collapses() -> None:
    silent(run(burst(cosine=-0.9), facts=ALONE, series=falls(-500.0)))


def test_a_loss_whose_chance_is_known_has_a_bound() -> None:
    silent(run(burst(), facts=ALONE, series={**falls(-500.0), "skill": [0.5] * 60}))


def test_an_actor_that_climbs_its_critic_has_two_optimizers() -> None:
    silent(run(burst(), facts=facts(optimizers=(optimizer(), optimizer())), series=falls(-500.0)))


def test_updates_that_were_violent_before_are_the_rates_doing() -> None:
    silent(run(observed("violent_update", 2, update_lg=-0.3), burst(), facts=ALONE, series=falls(-500.0)))


def test_a_loss_of_ones_own_that_falls_without_a_bound_is_an_objective_of_the_wrong_sign() -> None:
    claim = explains(run(burst(), facts=ALONE, series=falls(-500.0)), step=11, failure="optimizer_instability")
    assert "-500" in claim.summary
