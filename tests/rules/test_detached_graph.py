from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent
from neuraldbg.rules.detached_graph import detached_graph
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, optimizer, parameter, run

silent = partial(check_silent, detached_graph)
explains = partial(check_explains, detached_graph)

MODEL = facts(
    module("encoder", 0),
    module("head", 1),
    parameters=(parameter("encoder.weight"), parameter("head.weight")),
    optimizers=(optimizer(),),
)
FALLING = {"skill": [0.97**i for i in range(100)]}


def cut(layer: str = "encoder", share: float = 0.6) -> SemanticEvent:
    return observed("no_gradient", 0, layer, parameters=2, share=share)


def test_a_module_that_never_ran_is_only_unused() -> None:
    unused = facts(module("head", 1), module("encoder", None), parameters=(parameter("encoder.weight"),))
    silent(run(cut(), observed("loss_plateau", 3, skill=1.0), facts=unused))


def test_a_last_layer_that_the_loss_does_not_use_is_only_noted() -> None:
    silent(run(cut("head"), facts=MODEL, series=FALLING))


def test_a_small_part_of_a_model_that_learns_is_only_noted() -> None:
    silent(run(cut(share=0.019), facts=MODEL, series=FALLING))


def test_a_part_that_no_optimizer_was_given_is_meant_to_be_cut() -> None:
    borrowed = facts(
        module("encoder", 0),
        module("head", 1),
        parameters=(parameter("encoder.weight", owner=None), parameter("head.weight")),
        optimizers=(optimizer(),),
    )
    silent(run(cut(), facts=borrowed, series=FALLING))


def test_an_encoder_cut_off_from_the_loss() -> None:
    explains(run(cut(), facts=MODEL, series=FALLING), layer="encoder", step=0, failure="vanishing_gradients")


def test_a_fiftieth_of_the_parameters_is_no_detail() -> None:
    explains(run(cut(share=0.02), facts=MODEL, series=FALLING), layer="encoder", step=0)


def test_a_detail_cut_off_while_nothing_is_learnt() -> None:
    explains(run(cut(share=0.01), observed("loss_plateau", 3, skill=1.0), facts=MODEL), layer="encoder")


def test_a_parameter_that_its_module_does_not_use_is_unused_not_cut() -> None:
    both = facts(
        module("encoder", 0),
        module("head", 1),
        parameters=(
            parameter("encoder.weight", owner=0),
            parameter("encoder.eye", owner=0),
            parameter("head.weight", owner=0),
        ),
        optimizers=(optimizer(),),
    )
    event = observed("no_gradient", 0, "encoder", parameters=("encoder.eye",), share=0.2)
    silent(run(event, facts=both, series=FALLING))
    whole = observed("no_gradient", 0, "encoder", parameters=("encoder.eye", "encoder.weight"), share=0.4)
    explains(run(whole, facts=both, series=FALLING), layer="encoder")


def test_a_part_that_is_cut_off_in_mid_training() -> None:
    late = observed("lost_gradient", 60, "encoder", parameters=("encoder.weight",), share=0.6)
    (claim,) = detached_graph(run(late, facts=MODEL, series=FALLING))
    assert (claim.layer_name, claim.step, claim.outcome) == ("encoder", 60, True)
    assert "any more" in claim.summary


INSIDE = facts(
    module("blocks", None, without_grad=True),
    module("head", 0),
    parameters=(parameter("blocks.weight"), parameter("head.weight")),
    optimizers=(optimizer(),),
)
UNWATCHED = observed("no_gradient", 0, "blocks", parameters=("blocks.weight",), share=0.9, without_grad=True)


def test_a_part_that_runs_without_gradients_and_that_no_optimizer_was_given_is_a_teacher() -> None:
    teacher = facts(
        *INSIDE.modules,
        parameters=(parameter("blocks.weight", owner=None), parameter("head.weight")),
        optimizers=(optimizer(),),
    )
    assert list(detached_graph(run(UNWATCHED, observed("loss_plateau", 0, skill=1.0), facts=teacher))) == []


def test_a_part_that_runs_without_gradients_beside_a_loss_that_falls_is_only_noted() -> None:
    silent(run(UNWATCHED, facts=INSIDE, series=FALLING))


def test_a_part_that_runs_without_gradients_where_nothing_is_learned() -> None:
    claim = explains(run(UNWATCHED, observed("loss_plateau", 0, skill=1.0), facts=INSIDE), layer="blocks", step=0)
    assert "use_reentrant=False" in claim.remedy
