"""Healthy variants: what a good training may look like, hard negatives of the faults above all.

A variant must still learn; the corpus keeps only runs that reach their program's score.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus.plan import HEALTHY, Label, Plan, Switch


def plain(plan: Plan, level: int) -> Label:
    return HEALTHY


def accumulation(plan: Plan, level: int) -> Label:
    plan.micro, plan.size = 4, max(8, plan.size // 2)
    return HEALTHY


def clipped(plan: Plan, level: int) -> Label:
    plan.clip = 0.2
    return HEALTHY


def cosine(plan: Plan, level: int) -> Label:
    """Warm-up, then a cosine to zero."""
    plan.rates.append(lambda step: min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / plan.steps)))
    return HEALTHY


def restarts(plan: Plan, level: int) -> Label:
    """Warm restarts: the rate jumps back to its peak by design."""
    cycle = plan.steps // 4
    plan.rates.append(lambda step: 0.02 + 0.49 * (1 + math.cos(math.pi * (step % cycle) / cycle)))
    return HEALTHY


def stairs(plan: Plan, level: int) -> Label:
    plan.rates.append(lambda step: 0.1 ** (2 * step // plan.steps))
    return HEALTHY


def weight_decay(plan: Plan, level: int) -> Label:
    plan.optimizer = "adamw" if plan.optimizer == "adam" else plan.optimizer
    plan.optimizer_options = {**plan.optimizer_options, "weight_decay": 1e-3 if plan.optimizer == "sgd" else 0.05}
    return HEALTHY


def smoothing(plan: Plan, level: int) -> Label:
    plan.loss = functools.partial(F.cross_entropy, label_smoothing=0.2)
    return HEALTHY


def tiny_batch(plan: Plan, level: int) -> Label:
    plan.rate, plan.size, plan.steps = plan.rate / 3, 4, 2 * plan.steps
    return HEALTHY


def large_batch(plan: Plan, level: int) -> Label:
    plan.size = 256
    return HEALTHY


def fixed_order(plan: Plan, level: int) -> Label:
    """Epoch after epoch in the same order."""
    plan.fixed_order = True
    return HEALTHY


def whole(plan: Plan, level: int) -> Label:
    """The whole (small) data set is each batch."""
    plan.x, plan.y, plan.size = tuple(t[:320] for t in plan.x), plan.y[:320], 320
    plan.fixed_order = True
    return HEALTHY


def loud(plan: Plan, level: int) -> Label:
    """The loss times a constant, which Adam cancels."""
    plan.weight = lambda step: (1e-3, 1e4)[level]
    plan.optimizer_options = {**plan.optimizer_options, "eps": 1e-12}
    return HEALTHY


def brisk(plan: Plan, level: int) -> Label:
    """A rate that is high and still stable."""
    plan.rate *= 3
    return HEALTHY


def gentle(plan: Plan, level: int) -> Label:
    plan.rate /= 3
    plan.steps = int(plan.steps * 1.5)
    return HEALTHY


def skips(plan: Plan, level: int) -> Label:
    """Half precision: GradScaler finds its scale, overflowing steps are skipped by design."""
    plan.scaler = True
    plan.steps += 20
    return HEALTHY


def evaluated(plan: Plan, level: int) -> Label:
    """A validation pass in eval mode every few steps."""
    plan.evaluate_every = 15
    return HEALTHY


def frozen(plan: Plan, level: int) -> Label:
    """The first layer is frozen on purpose and the optimizer does not hold it."""
    for p in plan.module(plan.hidden[0]).parameters():
        p.requires_grad_(False)
    plan.owned = lambda: [p for p in plan.parameters() if p.requires_grad]
    return HEALTHY


def curriculum(plan: Plan, level: int) -> Label:
    """Noise on the inputs grows with the training."""
    g = torch.Generator().manual_seed(plan.seed + 61)

    def harder(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        share = 0.8 * step / plan.steps
        return tuple(t + share * torch.randn(t.shape, generator=g) if t.is_floating_point() else t for t in x)

    plan.inputs.append(harder)
    return HEALTHY


def converged(plan: Plan, level: int) -> Label:
    """Trained on after there is nothing left to learn: a plateau far below chance."""
    plan.steps *= 3
    plan.rates.append(lambda step: 1.0 if step < plan.steps / 3 else 0.3)
    return HEALTHY


def sparse(plan: Plan, level: int) -> Label:
    """Rectified units that are silent for most samples, though not for all."""
    with torch.no_grad():
        for name in plan.hidden:
            bias = plan.module(name).bias
            if isinstance(bias, Tensor):
                bias.fill_(-0.3)
    return HEALTHY


def bytes_in(plan: Plan, level: int) -> Label:
    """Inputs in 0..255, which the batch norm behind the first layer takes."""
    low, high = plan.x[0].min(), plan.x[0].max()
    plan.x = ((plan.x[0] - low) / (high - low) * 255, *plan.x[1:])
    plan.held_x = ((plan.held_x[0] - low) / (high - low) * 255, *plan.held_x[1:])
    return HEALTHY


def large_targets(plan: Plan, level: int) -> Label:
    """Targets in tens, met by a rate that fits."""
    plan.y, plan.held_y, plan.rate = 20 * plan.y + 40, 20 * plan.held_y + 40, plan.rate / (4 if level else 2)
    plan.steps = int(1.5 * plan.steps)
    with torch.no_grad():
        bias = plan.module(plan.head).bias
        assert isinstance(bias, Tensor)
        bias.fill_(40.0)
    return HEALTHY


def unit_targets(plan: Plan, level: int) -> Label:
    """Targets in [0, 1] and a sigmoid that gives them."""
    plan.y, plan.held_y = torch.sigmoid(2 * plan.y), torch.sigmoid(2 * plan.held_y)
    plan.rate *= 2
    return HEALTHY


def sure(plan: Plan, level: int) -> Label:
    """A final sigmoid that saturates because it is right."""
    plan.loss = F.binary_cross_entropy
    plan.score = _halves
    plan.steps *= 2
    return HEALTHY


def _halves(plan: Plan) -> float:
    from benchmarks.corpus.loops import outputs

    return ((outputs(plan) > 0.5).float() == plan.held_y).float().mean().item()


def averaged(plan: Plan, level: int) -> Label:
    """A moving average of the weights is kept beside the model."""
    kept = [p.detach().clone() for p in plan.parameters()]

    @torch.no_grad()
    def follow(step: int) -> None:
        for old, p in zip(kept, plan.parameters(), strict=True):
            old.lerp_(p, 0.05)

    plan.after.append(follow)
    return HEALTHY


def momentum(plan: Plan, level: int) -> Label:
    """Plain SGD with momentum in the place of Adam."""
    plan.optimizer, plan.optimizer_options, plan.rate = "sgd", {"momentum": 0.9}, 0.03
    plan.steps = int(1.5 * plan.steps)
    return HEALTHY


def rmsprop(plan: Plan, level: int) -> Label:
    plan.optimizer, plan.optimizer_options, plan.rate = "rmsprop", {}, plan.rate / 3
    return HEALTHY


def noisy_labels(plan: Plan, level: int) -> Label:
    """One label in eight is wrong all along; the rest is learned."""
    g = torch.Generator().manual_seed(plan.seed + 67)
    wrong = torch.rand(len(plan.y), generator=g) < 0.12
    plan.y = torch.where(wrong, torch.randint(0, int(plan.y.max()) + 1, plan.y.shape, generator=g), plan.y)
    return HEALTHY


def _acts(kind: type[nn.Module]) -> Any:
    def options(level: int) -> Mapping[str, Any]:
        return {"act": kind}

    return options


_ADAM = frozenset({"adam", "head", "-bootstraps"})
_ONE_LOSS = frozenset({"-adversarial", "-actor", "-graph"})
_ROWS = _ONE_LOSS | {"-pairs"}
SWITCHES = (
    Switch("plain", plain, levels=1),
    Switch("accumulation", accumulation, _ONE_LOSS, levels=1),
    Switch("clipped", clipped, frozenset({"-adversarial", "-actor", "-sgd"}), levels=1),
    Switch("cosine", cosine, frozenset({"-actor"}), levels=1),
    Switch("restarts", restarts, frozenset({"-actor", "-adversarial"}), levels=1),
    Switch("stairs", stairs, frozenset({"-actor"}), levels=1),
    Switch("weight_decay", weight_decay, levels=1),
    Switch("smoothing", smoothing, frozenset({"classes", "-attention", "-graph", "-policy"}), levels=1),
    Switch("tiny_batch", tiny_batch, _ONE_LOSS | {"-norm", "-attention"}, levels=1),
    Switch("large_batch", large_batch, _ONE_LOSS | {"-attention", "-pictures", "-sequence"}, levels=1),
    Switch("fixed_order", fixed_order, _ONE_LOSS, levels=1),
    Switch("whole", whole, _ROWS | {"-attention", "-bootstraps", "-pictures", "-embedding", "-sequence"}, levels=1),
    Switch("loud", loud, _ADAM | {"-adversarial"}),
    Switch("brisk", brisk, frozenset({"-actor", "-adversarial", "-sgd"}), levels=1),
    Switch("gentle", gentle, levels=1),
    Switch("skips", skips, _ONE_LOSS | {"dense", "head", "-rebuilds"}, levels=1),
    Switch("evaluated", evaluated, frozenset({"head"}), levels=1),
    Switch("frozen", frozen, frozenset({"hidden", "head", "-recurrent", "-gated", "-rebuilds"}), levels=1),
    Switch("curriculum", curriculum, frozenset({"float", "classes", "-graph"}), levels=1),
    Switch("converged", converged, frozenset({"head", "-attention", "-pictures", "-gated"}), levels=1),
    Switch("sparse", sparse, frozenset({"dense", "acts", "head"}), levels=1, options=_acts(nn.ReLU)),
    Switch("bytes_in", bytes_in, frozenset({"norm", "float", "-blocks"}), levels=1),
    Switch("large_targets", large_targets, frozenset({"values"})),
    Switch(
        "unit_targets",
        unit_targets,
        frozenset({"values", "output"}),
        levels=1,
        options=lambda v: {"output": nn.Sigmoid},
    ),
    Switch("sure", sure, frozenset({"binary", "output"}), levels=1, options=lambda v: {"output": nn.Sigmoid}),
    Switch("averaged", averaged, levels=1),
    Switch("momentum", momentum, _ADAM | {"dense", "classes"}, levels=1),
    Switch("rmsprop", rmsprop, _ADAM | {"-adversarial"}, levels=1),
    Switch("noisy_labels", noisy_labels, frozenset({"classes", "-graph", "-ties", "-policy"}), levels=1),
    Switch("dropout", plain, frozenset({"dropout"}), levels=1, options=lambda v: {"traits": {"dropout"}}),
    Switch("tied", plain, frozenset({"ties"}), levels=1, options=lambda v: {"traits": {"tied"}}),
    Switch("tanh", plain, frozenset({"acts", "head"}), levels=1, options=_acts(nn.Tanh)),
    Switch("silu", plain, frozenset({"acts", "head"}), levels=1, options=_acts(nn.SiLU)),
    Switch("leaky", plain, frozenset({"acts", "head"}), levels=1, options=_acts(nn.LeakyReLU)),
    Switch("sigmoid", plain, frozenset({"dense", "acts", "head", "classes"}), levels=1, options=_acts(nn.Sigmoid)),
)
VARIANTS: Mapping[str, Switch] = MappingProxyType({s.name: s for s in SWITCHES})
