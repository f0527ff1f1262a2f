from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.rules.optimizer_misses_parameters import optimizer_misses_parameters
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, optimizer, parameter, run

silent = partial(check_silent, optimizer_misses_parameters)
explains = partial(check_explains, optimizer_misses_parameters)


def stuck(layer: str, step: int = 0) -> SemanticEvent:
    return observed("stuck_parameter", step, layer, parameters=2, share=0.25, owned=False)


def test_a_pause_of_the_updates_that_ends_is_nothing() -> None:
    stop = observed("updates_stop", 20, since=20)
    silent(run(stop, recovered(stop, 30)))


def test_a_head_trained_on_an_unfrozen_backbone_that_learns_is_only_noted() -> None:
    tuned = facts(
        module("body", 0),
        module("head", 1),
        parameters=(parameter("body.weight", owner=None), parameter("head.weight", owner=0)),
    )
    silent(run(stuck("body"), facts=tuned, series={"skill": [0.97**i for i in range(100)]}))


def test_the_same_head_that_does_not_learn() -> None:
    tuned = facts(
        module("body", 0),
        module("head", 1),
        parameters=(parameter("body.weight", owner=None), parameter("head.weight", owner=0)),
    )
    explains(run(stuck("body"), observed("loss_plateau", 5, skill=1.0), facts=tuned), layer="body")


def test_an_encoder_that_never_moves_behind_a_hand_written_optimizer() -> None:
    explains(run(stuck("encoder")), layer="encoder", step=0, failure="optimizer_instability")


def test_a_new_head_that_the_optimizer_was_not_given() -> None:
    replaced = facts(
        module("body", 0),
        module("head", 1),
        parameters=(parameter("body.weight", owner=0), parameter("head.weight", owner=None)),
    )
    explains(run(stuck("head"), facts=replaced), layer="head")


def test_updates_that_stop_in_the_middle() -> None:
    explains(run(observed("updates_stop", 60, since=60)), step=60)


def test_a_front_layer_that_was_forgotten_is_no_fine_tuning() -> None:
    """Most layers train: nobody fine-tunes three of four."""
    names = ("a", "b", "c", "d")
    net = facts(
        *[module(n, k) for k, n in enumerate(names)],
        parameters=tuple(parameter(f"{n}.weight", owner=None if n == "a" else 0) for n in names),
        optimizers=(optimizer(),),
    )
    falling = {"skill": [0.97**i for i in range(100)]}
    explains(run(observed("stuck_parameter", 0, "a", share=0.25), facts=net, series=falling), layer="a")


def test_only_a_head_trained_on_random_layers_is_no_fine_tuning() -> None:
    """The backbone has the size of a fresh start, 1 / sqrt(3 fan-in); loaded weights of another size are kept."""
    falling = {"skill": [0.97**i for i in range(100)]}
    for rms, told in ((1 / (3 * 20) ** 0.5, True), (0.2, False)):
        tuned = facts(
            module("body", 0),
            module("head", 1),
            parameters=(
                parameter("body.weight", owner=None, numel=800, rms=rms),
                parameter("body.bias", owner=None, numel=40, dims=1),
                parameter("head.weight", owner=0),
            ),
        )
        (claim,) = optimizer_misses_parameters(run(stuck("body"), facts=tuned, series=falling))
        assert claim.outcome is told


def test_half_precision_weights_that_an_optimizer_holds_are_rounded_not_missed() -> None:
    stuck = observed("stuck_parameter", 0, "fc1", share=0.5, owned=True, dtype="bfloat16")
    assert list(optimizer_misses_parameters(run(stuck, observed("loss_plateau", 0)))) == []
