"""Faults of the data: inputs and targets."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.corpus.faults._parts import DATA, DEAD, EXPLODING, INSTABILITY, SATURATED, said, start
from benchmarks.corpus.plan import Batch, Label, Plan, Switch


def _planted(plan: Plan, number: float, often: bool) -> int:
    """One element of the first input becomes `number`, once or in every batch from then on."""
    s = start(plan)

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step < s or (step > s and not often):
            return x
        first = x[0].clone()
        first.view(len(first), -1)[(3 * step) % len(first), 1] = number
        return (first, *x[1:])

    plan.inputs.append(change)
    return s


def nan_input(plan: Plan, level: int) -> Label:
    s = _planted(plan, torch.nan, bool(level))
    return said("nan_in_input", DATA, onset=(s, s))


def inf_input(plan: Plan, level: int) -> Label:
    s = _planted(plan, torch.inf, bool(level))
    return said("inf_in_input", DATA, onset=(s, s))


def shift(plan: Plan, level: int) -> Label:
    s = start(plan)
    scale, offset = ((1.0, 8.0), (25.0, 0.0))[level]

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step < s:
            return x
        return tuple(scale * t + offset if t.is_floating_point() else t for t in x)

    plan.inputs.append(change)
    return said("input_distribution_shift", DATA, onset=(s, s + 5))


def raw(plan: Plan, level: int) -> Label:
    """Columns in raw units: large, and far from zero."""
    scale, offset = ((300.0, 0.0), (100.0, 1000.0), (1.0, 60.0))[level]

    def units(x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(scale * t + offset if t.is_floating_point() and t.dim() < 5 else t for t in x)

    if plan.full:
        plan.x, plan.held_x = (units(plan.x[:1])[0], *plan.x[1:]), (units(plan.held_x[:1])[0], *plan.held_x[1:])
    else:
        plan.x, plan.held_x = units(plan.x), units(plan.held_x)
    return said("unnormalised_inputs", DATA, SATURATED, DEAD, EXPLODING, INSTABILITY, onset=(0, 60))


def raw_target(plan: Plan, level: int) -> Label:
    scale = (200.0, 1e4)[level]
    plan.y, plan.held_y = scale * plan.y, scale * plan.held_y
    return said("unnormalised_inputs", DATA, EXPLODING, INSTABILITY, DEAD, onset=(0, 60))


def sentinel(plan: Plan, level: int) -> Label:
    s = start(plan)
    g = torch.Generator().manual_seed(plan.seed + 3)

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step < s:
            return x
        first = x[0].clone()
        first[torch.rand(first.shape, generator=g) < (0.01, 0.04)[level]] = (-999.0, -9999.0)[level]
        return (first, *x[1:])

    plan.inputs.append(change)
    return said("missing_value_sentinel", DATA, onset=(s, s + 5))


def _zeroes(plan: Plan, share: float, s: int) -> Label:
    g = torch.Generator().manual_seed(plan.seed + 5)
    lost = s + (torch.rand(plan.steps, generator=g) < share).nonzero().squeeze(1)
    steps = set(lost.tolist())

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(torch.zeros_like(t) if t.is_floating_point() else t for t in x) if step in steps else x

    plan.inputs.append(change)
    return said("zeroed_inputs", DATA, onset=(int(lost[0]), int(lost[0]) + 10))


def zeroed(plan: Plan, level: int) -> Label:
    return _zeroes(plan, (0.3, 0.6)[level], 2)


def zeroed_late(plan: Plan, level: int) -> Label:
    return _zeroes(plan, (0.3, 0.6)[level], start(plan))


def repeated(plan: Plan, level: int) -> Label:
    """Workers that share one random state: each batch comes several times."""
    every = (8, 24)[level]
    kept: list[Batch] = []

    def change(step: int, batch: Batch) -> Batch:
        if step % every == 0:
            kept[:] = [batch]
        return kept[0]

    plan.batches.insert(0, change)
    return said("duplicated_batches", DATA, onset=(0, 40))


def relabelled(plan: Plan, level: int) -> Label:
    """A second source of data whose classes are counted from another start; level 0: half of the batches."""
    s = start(plan)
    classes = int(plan.y.max()) + 1

    def change(step: int, y: Tensor) -> Tensor:
        if step < s or (level == 0 and step % 2):
            return y
        return (y + 1) % classes

    plan.targets.append(change)
    return said("label_error", DATA, onset=(s, s + 6))


def other_unit(plan: Plan, level: int) -> Label:
    """Targets in another unit from some step on."""
    s = start(plan)
    scale = (12.0, 100.0)[level]
    plan.targets.append(lambda step, y: scale * y if step >= s else y)
    return Label(("label_error", "target_outlier"), (DATA,), (), (s, s + 4))


def outlier(plan: Plan, level: int) -> Label:
    s = start(plan)

    def change(step: int, y: Tensor) -> Tensor:
        if step != s:
            return y
        y = y.clone()
        y[0] = (3e3, 1e5)[level]
        return y

    plan.targets.append(change)
    return said("target_outlier", DATA, onset=(s, s + 2))


_FLOAT = frozenset({"float", "-graph"})
_ALONE = _FLOAT | {"-actor", "-adversarial", "-rebuilds"}
SWITCHES = (
    Switch("nan_input", nan_input, _FLOAT, late=True),
    Switch("inf_input", inf_input, _FLOAT, late=True),
    Switch("shift", shift, _ALONE, late=True),
    Switch("raw", raw, frozenset({"raw", "-rebuilds"}), levels=3),
    Switch("raw_target", raw_target, frozenset({"values"})),
    Switch("sentinel", sentinel, _ALONE, late=True),
    Switch("zeroed", zeroed, _ALONE | {"-policy"}),
    Switch("zeroed_late", zeroed_late, _ALONE | {"-policy"}, late=True),
    Switch("repeated", repeated, _FLOAT | {"-actor", "-adversarial"}),
    Switch("relabelled", relabelled, frozenset({"classes", "-graph", "-attention"}), late=True),
    Switch("other_unit", other_unit, frozenset({"values"}), late=True),
    Switch("outlier", outlier, frozenset({"values", "sgd"}), late=True),
)
