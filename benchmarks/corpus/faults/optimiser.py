"""Faults of the optimiser and of the loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.corpus.faults._parts import DEAD, EXPLODING, INSTABILITY, SATURATED, VANISHING, said, start
from benchmarks.corpus.plan import Label, Plan, Switch


def rate_high(plan: Plan, level: int) -> Label:
    plan.rate *= ((6, 20, 60) if plan.optimizer == "sgd" else (10, 40, 150))[level]
    return said("learning_rate_too_high", INSTABILITY, EXPLODING, DEAD, SATURATED, onset=(0, plan.steps // 2))


def rate_low(plan: Plan, level: int) -> Label:
    plan.rate *= (5e-3, 5e-4)[level]
    return said("learning_rate_too_low", INSTABILITY, onset=(0, plan.steps))


def cold(plan: Plan, level: int) -> Label:
    plan.rate *= (10, 30)[level]
    return Label(("warmup_missing", "learning_rate_too_high"), (INSTABILITY,), (), (0, 40))


def jump(plan: Plan, level: int) -> Label:
    s, times = start(plan), (30, 100)[level] if plan.optimizer != "sgd" else (15, 60)[level]
    last = plan.steps if level else s + 12
    plan.rates.append(lambda step: times if s <= step < last else 1.0)
    return said("schedule_jump", INSTABILITY, EXPLODING, DEAD, onset=(s, s + 4))


def decay(plan: Plan, level: int) -> Label:
    if plan.optimizer != "sgd":
        plan.optimizer = "adamw"
    plan.optimizer_options = {**plan.optimizer_options, "weight_decay": (0.03, 0.15)[level] / plan.rate}
    return said("weight_decay_too_high", INSTABILITY, VANISHING, onset=(0, plan.steps // 2))


def keep_gradients(plan: Plan, level: int) -> Label:
    """Level 0 from the start, level 1 late: a branch of the loop that forgets the call."""
    s = start(plan) if level else 1
    plan.clears = lambda step: step < s
    return said("missing_zero_grad", INSTABILITY, EXPLODING, onset=(s, plan.steps))


def summed(plan: Plan, level: int) -> Label:
    """The loss as a sum over the batch, or many micro-batches whose gradients are not divided."""
    if level:
        plan.micro = 12
        plan.weight = lambda step: 12.0
        return said("loss_scale", INSTABILITY, EXPLODING, onset=(0, 30))
    mean = plan.loss
    plan.loss = lambda out, y: mean(out, y, reduction="sum")  # type: ignore[call-arg]
    return said("loss_scale", INSTABILITY, EXPLODING, onset=(0, 30))


def _of(plan: Plan, names: tuple[str, ...]) -> set[nn.Parameter]:
    return {p for name in names for p in plan.module(name).parameters()}


def misses(plan: Plan, level: int) -> Label:
    """The optimizer was built without the head (0), or without the layers before it (1)."""
    names = plan.hidden if level else (plan.head,)
    lost = {id(p) for p in _of(plan, names)}
    plan.owned = lambda: [p for p in plan.parameters() if id(p) not in lost]
    return said("optimizer_misses_parameters", INSTABILITY, layers=names, onset=(0, 10))


def _renew(plan: Plan, name: str) -> None:
    """Another linear layer of the same sizes takes the place of this one."""
    old = plan.module(name)
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed + 77)
        fresh = nn.Linear(old.in_features, old.out_features)  # type: ignore[arg-type]
    parent, _, last = name.rpartition(".")
    setattr(plan.model.get_submodule(parent), last, fresh)


def replaced(plan: Plan, level: int) -> Label:
    """The head is replaced in mid-training, after the optimizer was built."""
    s, name = start(plan), plan.head

    def act(step: int, optimizer: Any) -> None:
        if step == s:
            _renew(plan, name)

    plan.before.append(act)
    return said("optimizer_misses_parameters", INSTABILITY, layers=(name,), onset=(s, s + 10))


def clip_part(plan: Plan, level: int) -> Label:
    """A rate that only a clip makes possible, and a clip without the head (0), or without the layers before it (1)."""
    names = plan.hidden if level else (plan.head,)
    lost = {id(p) for p in _of(plan, names)}
    plan.rate, plan.clip = 30 * plan.rate, 0.1
    plan.clipped = lambda: [p for p in plan.parameters() if id(p) not in lost]
    return said("clipping_misses_parameters", INSTABILITY, EXPLODING, layers=names, onset=(0, 10))


def clip_stale(plan: Plan, level: int) -> Label:
    """The head (0), or the layer before it (1), is replaced in mid-training: the optimizer knows, the clip does not."""
    s, name, listed = start(plan), (plan.head, plan.hidden[-1])[level], plan.parameters()
    plan.rate, plan.clip = 30 * plan.rate, 0.1
    plan.clipped = lambda: listed

    def act(step: int, optimizer: Any) -> None:
        if step == s:
            old = list(plan.module(name).parameters())
            _renew(plan, name)
            new = dict(zip(old, plan.module(name).parameters(), strict=True))
            held = optimizer.param_groups[0]
            held["params"] = [new.get(p, p) for p in held["params"]]

    plan.before.append(act)
    return said("clipping_misses_parameters", INSTABILITY, EXPLODING, layers=(name,), onset=(s, s + 10))


def ascent(plan: Plan, level: int) -> Label:
    s = start(plan) if level else 0
    plan.weight = lambda step: -1.0 if step >= s else 1.0
    return said("gradient_ascent", INSTABILITY, EXPLODING, onset=(s, s + 20))


def bootstrap(plan: Plan, level: int) -> Label:
    if level:
        plan.rate *= 1.5
    return said("bootstrap_divergence", EXPLODING, INSTABILITY, onset=(5, plan.steps))


def _half(plan: Plan) -> None:
    net = plan.model.half()

    def run(*x: Tensor) -> Tensor:
        found: Tensor = net(*(t.half() if t.is_floating_point() else t for t in x)).float()
        return found

    plan.forward = run


def half_overflow(plan: Plan, level: int) -> Label:
    """A loss scale that only ever grows, in float16."""
    _half(plan)
    plan.optimizer, plan.rate, plan.optimizer_options = "sgd", 0.1, {}
    every = (12, 6)[level]
    plan.weight = lambda step: 2.0 ** (10 + step // every)
    plan.info["scaled"] = True

    def unscale(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.div_(plan.weight(plan.info["step"]))

    def act(step: int, optimizer: Any) -> None:
        plan.info["step"] = step
        if step == 0:
            optimizer.register_step_pre_hook(unscale)

    plan.before.append(act)
    return said("half_precision_overflow", EXPLODING, INSTABILITY, onset=(5, plan.steps))


def half_underflow(plan: Plan, level: int) -> Label:
    """Float16 weights under Adam, whose epsilon rounds to zero."""
    _half(plan)
    plan.optimizer, plan.optimizer_options = "adam", {"eps": 1e-8}
    return said("half_precision_underflow", INSTABILITY, EXPLODING, onset=(0, 3))


def scrambled(plan: Plan, level: int) -> Label:
    """Something outside the training writes noise over the weights: no cause of ours."""
    s = start(plan)
    noise = torch.Generator().manual_seed(plan.seed + 41)

    @torch.no_grad()
    def act(step: int) -> None:
        if step >= s and (step - s) % 3 == 0:
            for p in plan.parameters():
                p.add_((0.5, 1.5)[level] * torch.randn(p.shape, generator=noise))

    plan.after.append(act)
    return said("unknown", INSTABILITY, EXPLODING, DEAD, SATURATED, VANISHING, onset=(s, s + 20))


_LOOP = frozenset({"-adversarial", "-actor"})
SWITCHES = (
    Switch("rate_high", rate_high, levels=3),
    Switch("rate_low", rate_low, _LOOP),
    Switch("cold", cold, frozenset({"attention"}), options=lambda level: {"traits": {"cold"}}),
    Switch("jump", jump, late=True),
    Switch("decay", decay, frozenset({"-actor"})),
    Switch("keep_gradients", keep_gradients, levels=1),
    Switch("keep_gradients_late", lambda p, level: keep_gradients(p, 1), levels=1, late=True),
    Switch("summed", summed, frozenset({"sgd"})),
    Switch("misses", misses, frozenset({"head", "hidden"})),
    Switch("replaced", replaced, frozenset({"head", "dense", "-ties"}), levels=1, late=True),
    Switch("clip_part", clip_part, frozenset({"sgd", "head", "hidden", "-bootstraps"})),
    Switch("clip_stale", clip_stale, frozenset({"sgd", "head", "dense", "-ties", "-bootstraps"}), late=True),
    Switch("ascent", ascent, _LOOP, levels=1),
    Switch("ascent_late", lambda p, level: ascent(p, 1), _LOOP, levels=1, late=True),
    Switch("bootstrap", bootstrap, frozenset({"bootstraps"}), options=lambda level: {"traits": {"stretch"}}),
    Switch("half_overflow", half_overflow, frozenset({"dense", "classes", "raw"}), late=True),
    Switch("half_underflow", half_underflow, frozenset({"dense", "head", "-bootstraps", "-rebuilds"}), levels=1),
    Switch("scrambled", scrambled, frozenset({"hidden", "acts"}), late=True),
)
