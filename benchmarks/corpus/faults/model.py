"""Faults of the model: how it is built, started and connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus.faults._parts import (
    DEAD,
    EXPLODING,
    INSTABILITY,
    SATURATED,
    VANISHING,
    Detach,
    Factors,
    said,
    start,
    swap,
)
from benchmarks.corpus.plan import Label, Plan, Switch


def _weights(plan: Plan, names: tuple[str, ...]) -> list[nn.Parameter]:
    found = [plan.module(n).weight for n in names]
    return [w for w in found if isinstance(w, nn.Parameter)]


@torch.no_grad()
def init_small(plan: Plan, level: int) -> Label:
    for w in _weights(plan, plan.hidden):
        w.mul_((0.1, 0.03)[level])
    return said("bad_initialisation", VANISHING, layers=plan.hidden + plan.acts, onset=(0, 0))


@torch.no_grad()
def init_large(plan: Plan, level: int) -> Label:
    for w in _weights(plan, plan.hidden):
        w.mul_((12.0, 40.0)[level])
    return said(
        "bad_initialisation", EXPLODING, INSTABILITY, DEAD, SATURATED, layers=plan.hidden + plan.acts, onset=(0, 3)
    )


@torch.no_grad()
def init_alike(plan: Plan, level: int) -> Label:
    names = (*plan.hidden, plan.head)
    for w in _weights(plan, names):
        w.fill_(0.5 / w[0].numel())
    return said("bad_initialisation", INSTABILITY, VANISHING, layers=names, onset=(0, 0))


def deep_sigmoid(plan: Plan, level: int) -> Label:
    return said("saturating_activations_deep", VANISHING, layers=plan.hidden + plan.acts, onset=(0, 0))


@torch.no_grad()
def dead_bias(plan: Plan, level: int) -> Label:
    """Level 0: the last hidden layer, level 1: the first."""
    k = (-1, 0)[level]
    layer = plan.module(plan.hidden[k])
    assert isinstance(layer.bias, Tensor)
    layer.bias.fill_(-(12.0, 40.0)[level])
    return said("dead_relu_negative_bias", DEAD, layers=(plan.hidden[k], plan.acts[k]), onset=(0, 0))


def _last(plan: Plan, kind: type[nn.Module]) -> tuple[str, ...]:
    names = [n for n, m in plan.model.named_modules() if isinstance(m, kind)]
    return (names[-1], plan.head)


def output(plan: Plan, level: int) -> Label:
    kind = (nn.ReLU, nn.Sigmoid, nn.Tanh)[level]
    failures = (DEAD, VANISHING) if level == 0 else (SATURATED, VANISHING)
    return said("wrong_output_activation", *failures, layers=_last(plan, kind), onset=(0, 60))


def softmax_of_one(plan: Plan, level: int) -> Label:
    return said("wrong_output_activation", VANISHING, SATURATED, layers=_last(plan, nn.Softmax), onset=(0, 0))


def double_softmax(plan: Plan, level: int) -> Label:
    return said("double_softmax", SATURATED, VANISHING, layers=_last(plan, nn.Softmax), onset=(0, 3))


def wrong_loss(plan: Plan, level: int) -> Label:
    """Cross-entropy on probabilities, with targets that are none."""
    causes: tuple[str, ...] = ("wrong_loss",)
    if plan.loss is F.binary_cross_entropy_with_logits:
        plan.targets.append(lambda step, y: y + 1)
        causes = ("wrong_loss", "label_error")  # classes counted from one: both names are fair
    else:
        plan.loss = F.binary_cross_entropy_with_logits
    return Label(causes, (EXPLODING, INSTABILITY, "data_anomaly"), (), (0, 5))


def unscaled(plan: Plan, level: int) -> Label:
    return said("attention_logits_scale", SATURATED, VANISHING, layers=plan.info["softmax"], onset=(0, 0))


def bare(plan: Plan, level: int) -> Label:
    return said("residual_growth_without_norm", EXPLODING, INSTABILITY, layers=plan.info["blocks"], onset=(0, 5))


@torch.no_grad()
def recurrent_explosion(plan: Plan, level: int) -> Label:
    weight = plan.module("rnn").get_parameter("weight_hh_l0")
    weight.mul_((3.0, 5.0)[level])
    plan.clip = None
    return said("recurrent_explosion", EXPLODING, layers=("rnn",), onset=(0, 3))


@torch.no_grad()
def recurrent_vanishing(plan: Plan, level: int) -> Label:
    weight = plan.module("rnn").get_parameter("weight_hh_l0")
    weight.mul_((0.15, 0.03)[level])
    return said("recurrent_vanishing", VANISHING, layers=("rnn",), onset=(0, 3))


def norm_of_one(plan: Plan, level: int) -> Label:
    return said("normalisation_over_one_feature", VANISHING, layers=_last(plan, nn.LayerNorm)[:1], onset=(0, 0))


def group_of_one(plan: Plan, level: int) -> Label:
    """A group norm with as many groups as there are features."""
    name, act = plan.hidden[0], plan.acts[0]
    width = plan.module(name).get_parameter("weight").shape[0]
    swap(plan, act, lambda old: nn.Sequential(nn.GroupNorm(width, width), old))
    return said("normalisation_over_one_feature", VANISHING, layers=(f"{act}.0",), onset=(0, 0))


def zero_factors(plan: Plan, level: int) -> Label:
    """Level 0: the head is a product of two zero factors, level 1: the last hidden layer is."""
    name = plan.hidden[-1] if level else plan.head
    swap(plan, name, lambda old: Factors(int(old.in_features), int(old.out_features)))  # type: ignore[arg-type]
    return said("zero_initialised_factors", VANISHING, layers=(name, f"{name}.a", f"{name}.b"), onset=(0, 0))


def _cut(plan: Plan, which: int, since: int) -> Label:
    name = plan.acts[which]
    swap(plan, name, lambda old: nn.Sequential(old, Detach(since)))
    before = plan.hidden[: len(plan.hidden) + which + 1] if which < 0 else plan.hidden[: which + 1]
    return said("detached_graph", VANISHING, layers=(*before, name, f"{name}.0", f"{name}.1"), onset=(since, since + 6))


def detached(plan: Plan, level: int) -> Label:
    return _cut(plan, -1 if level == 0 else 0, 0)


def detached_late(plan: Plan, level: int) -> Label:
    return _cut(plan, -1, start(plan))


def frozen(plan: Plan, level: int) -> Label:
    """Fine-tuning that freezes all but norms and embeddings, the head with it, which the optimizer holds."""
    kept = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.Embedding)
    for module in plan.model.modules():
        if not isinstance(module, kept):
            for p in module.parameters(recurse=False):
                p.requires_grad_(False)
    head = list(plan.module(plan.head).parameters())
    plan.owned = lambda: head
    return said("frozen_parameters", VANISHING, INSTABILITY, layers=(plan.head, *plan.hidden), onset=(0, 5))


def _evaluates(plan: Plan, since: int) -> Label:
    for t in (plan.x[0], plan.held_x[0]):
        t.mul_(60.0).add_(120.0)  # the norm would take it; its running statistics of (0, 1) do not

    def act(step: int, optimizer: Any) -> None:
        if step >= since:
            plan.model.eval()

    plan.before.append(act)
    return said("eval_mode_during_training", INSTABILITY, onset=(since, since + 3))


def eval_mode(plan: Plan, level: int) -> Label:
    return _evaluates(plan, 0)


def eval_mode_late(plan: Plan, level: int) -> Label:
    return _evaluates(plan, start(plan))


def strong_critic(plan: Plan, level: int) -> Label:
    """The first GAN's loss against a discriminator that learns much faster."""
    plan.info.update(saturating=True, disc_push=(5.0, 12.0)[level], disc_steps=(2, 3)[level])
    plan.x, plan.held_x = (plan.x[0] + 5,), (plan.held_x[0] + 5,)  # far from where the generator starts
    prob = str(plan.info["prob"])
    return said("discriminator_saturation", VANISHING, SATURATED, layers=(prob,), onset=(3, plan.steps))


def variance_collapse(plan: Plan, level: int) -> Label:
    """A learned spread without a floor, on so few rows that the mean meets them exactly."""
    rows = (8, 24)[level]
    plan.x, plan.y, plan.size = tuple(t[:rows] for t in plan.x), plan.y[:rows], rows
    plan.full, plan.rate, plan.steps = True, plan.rate * 2, 300
    return said("variance_collapse", INSTABILITY, EXPLODING, layers=("raw",), onset=(5, 300))


def pinned_actor(plan: Plan, level: int) -> Label:
    plan.info.update(unit=(30.0, 60.0)[level], actor_push=10.0)
    return said("unbounded_preactivation", SATURATED, layers=("actor.squash",), onset=(2, 150))


def _deep(act: type[nn.Module], *depths: int) -> Any:
    def options(level: int) -> Mapping[str, Any]:
        return {"act": act, "depth": depths[level]}

    return options


def _trait(name: str, **more: Any) -> Any:
    def options(level: int) -> Mapping[str, Any]:
        return {"traits": {name}, **{key: value[level] for key, value in more.items()}}

    return options


def _ends(*kinds: Any) -> Any:
    def options(level: int) -> Mapping[str, Any]:
        return {"output": kinds[level]}

    return options


def _softmax() -> nn.Module:
    return nn.Softmax(dim=-1)


_DEEP = frozenset({"deepens"})
_HIDDEN = frozenset({"dense", "hidden", "acts", "head"})
SWITCHES = (
    Switch("init_small", init_small, _DEEP, options=_deep(nn.ReLU, 6, 5)),
    Switch("init_large", init_large, _DEEP, options=_deep(nn.ReLU, 4, 4)),
    Switch("init_alike", init_alike, _HIDDEN, levels=1),
    Switch("deep_sigmoid", deep_sigmoid, _DEEP, options=_deep(nn.Sigmoid, 8, 12)),
    Switch("dead_bias", dead_bias, _HIDDEN, options=lambda level: {"act": nn.ReLU}),
    Switch("output", output, frozenset({"output", "head"}), levels=3, options=_ends(nn.ReLU, nn.Sigmoid, nn.Tanh)),
    Switch("softmax_of_one", softmax_of_one, frozenset({"output", "scalar"}), levels=1, options=_ends(_softmax)),
    Switch("double_softmax", double_softmax, frozenset({"output", "classes"}), levels=1, options=_ends(_softmax)),
    Switch("wrong_loss", wrong_loss, frozenset({"-classes", "-bootstraps", "-rebuilds", "head", "-spread"}), levels=1),
    Switch("unscaled", unscaled, frozenset({"attention"}), levels=1, options=_trait("unscaled")),
    Switch("bare", bare, frozenset({"blocks"}), options=_trait("bare", depth=(14, 24))),
    Switch(
        "recurrent_explosion",
        recurrent_explosion,
        frozenset({"recurrent"}),
        options=_trait("unbounded", depth=(50, 70)),
    ),
    Switch("recurrent_vanishing", recurrent_vanishing, frozenset({"recurrent"})),
    Switch(
        "norm_of_one", norm_of_one, frozenset({"output", "scalar"}), levels=1, options=_ends(lambda: nn.LayerNorm(1))
    ),
    Switch("group_of_one", group_of_one, _HIDDEN - {"head"}, levels=1),
    Switch("zero_factors", zero_factors, _HIDDEN | {"-rebuilds"}),
    Switch("detached", detached, _HIDDEN),
    Switch("detached_late", detached_late, _HIDDEN, levels=1, late=True),
    Switch("frozen_norm", frozen, frozenset({"norm", "head"}), levels=1),
    Switch("frozen_embedding", frozen, frozenset({"embedding", "head", "-norm", "-ties"}), levels=1),
    Switch("eval_mode", eval_mode, frozenset({"norm", "-blocks"}), levels=1),
    Switch("eval_mode_late", eval_mode_late, frozenset({"norm", "-blocks"}), levels=1, late=True),
    Switch("strong_critic", strong_critic, frozenset({"adversarial"}), options=_trait("prob")),
    Switch("variance_collapse", variance_collapse, frozenset({"spread"}), options=_trait("floorless")),
    Switch("pinned_actor", pinned_actor, frozenset({"actor"})),
)
