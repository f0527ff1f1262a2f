from __future__ import annotations

from functools import partial

from neuraldbg.events import SemanticEvent, recovered
from neuraldbg.rules.attention_logits_scale import attention_logits_scale
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, attention_logits_scale)
explains = partial(check_explains, attention_logits_scale)


def sharp(step: int = 0, entropy: float = 0.2, at_start: bool = True) -> SemanticEvent:
    return observed("attention_onehot", step, "attn.softmax", entropy=entropy, at_start=at_start)


def test_attention_that_gets_sharp_while_the_loss_falls_has_learnt() -> None:
    silent(run(sharp(80, 0.1, at_start=False), series={"skill": [0.97**i for i in range(100)]}))


def test_attention_that_opens_again_is_fine() -> None:
    silent(run(sharp(), recovered(sharp(), 20)))


def test_attention_on_one_token_from_the_first_step_on() -> None:
    explains(run(sharp()), layer="attn.softmax", step=0, failure="saturated_activations")


def test_attention_that_collapses_with_the_loss() -> None:
    late = sharp(40, 0.05, at_start=False)
    explains(run(late, observed("loss_plateau", 41, skill=1.0)), layer="attn.softmax", step=40)
