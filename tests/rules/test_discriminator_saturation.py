from __future__ import annotations

from functools import partial

from neuraldbg.rules.discriminator_saturation import discriminator_saturation
from neuraldbg.testing import check_explains, check_silent, facts, module, observed, optimizer, run

silent = partial(check_silent, discriminator_saturation)
explains = partial(check_explains, discriminator_saturation)

GAN = facts(
    module("gen", 0), module("disc.prob", 1, "sigmoid", position="output"), optimizers=(optimizer(), optimizer())
)
FULL = observed("saturation", 8, "disc.prob", share=1.0, function="sigmoid", position="output")
STARVED = observed("vanishing_group", 12, group=0, decay_lg=-3.2, others_lg=-0.2)


def test_a_classifier_is_meant_to_saturate() -> None:
    one = facts(module("disc.prob", 1, "sigmoid", position="output"), optimizers=(optimizer(),))
    silent(run(FULL, STARVED, facts=one))


def test_a_sure_discriminator_that_still_teaches_is_fine() -> None:
    silent(run(FULL, facts=GAN))


def test_a_pinned_actor_is_another_cause() -> None:
    pinned = observed("saturation", 4, "squash", share=1.0, function="tanh", position="hidden")
    silent(run(pinned, STARVED, facts=GAN))


def test_a_generator_that_starves() -> None:
    explains(run(FULL, STARVED, facts=GAN), layer="disc.prob", step=8, failure="vanishing_gradients")
