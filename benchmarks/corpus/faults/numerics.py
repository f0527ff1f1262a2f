"""Faults of numerics: values or slopes that are not finite."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.corpus.faults._parts import (
    DATA,
    EXPLODING,
    Exp,
    LogFeature,
    Power,
    Root,
    UnitRows,
    Untaken,
    front,
    said,
    start,
    swap,
)
from benchmarks.corpus.plan import Label, Plan, Switch


def op_forward(plan: Plan, level: int) -> Label:
    """Every hidden activation is an exponential, or a fifth power."""
    for name in plan.acts:
        swap(plan, name, lambda old: (Exp, Power)[level]())
    near = plan.acts + plan.hidden + ((plan.head,) if level else ())
    return said("numerical_op_forward", EXPLODING, layers=near, onset=(0, 40))


def log_of_zero(plan: Plan, level: int) -> Label:
    """A logarithm in the model meets a feature of exactly zero."""
    s = start(plan)
    front(plan, LogFeature())

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step != s:
            return x
        first = x[0].clone()
        first[:2, 1] = 0.0
        return (first, *x[1:])

    plan.inputs.append(change)
    return said("numerical_op_forward", EXPLODING, DATA, layers=("0",), onset=(s, s))


def op_backward(plan: Plan, level: int) -> Label:
    """A root of zero, or a root in the branch that is not taken."""
    name = plan.acts[-1]
    if level:
        swap(plan, name, lambda old: Untaken())
        return said("numerical_op_backward", EXPLODING, layers=(name, plan.hidden[-1]), onset=(0, 0))
    swap(plan, name, lambda old: nn.Sequential(old, Root()))
    near = (f"{name}.1", f"{name}.0", name, plan.hidden[-1])
    return said("numerical_op_backward", EXPLODING, layers=near, onset=(0, 0))


def same_pair(plan: Plan, level: int) -> Label:
    """A pair of equal rows: their distance is zero, and the root's slope there is infinite."""
    s = start(plan)

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step != s:
            return x
        b = x[1].clone()
        b[0] = x[0][0]
        return (x[0], b)

    plan.inputs.append(change)
    near = ("", "tower", "tower.0", "tower.1", "tower.2")
    return said("numerical_op_backward", EXPLODING, layers=near, onset=(s, s))


def lone_node(plan: Plan, level: int) -> Label:
    """From some step on the graph has a node without neighbours."""
    s = start(plan)

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step < s:
            return x
        edges = x[1].clone()
        edges[3] = 0.0
        return (x[0], edges)

    plan.inputs.append(change)
    return said("division_by_zero", DATA, EXPLODING, layers=("conv1", "conv1.lin"), onset=(s, s))


def zero_row(plan: Plan, level: int) -> Label:
    """Rows are divided by their length in the model; one row is all zero."""
    s = start(plan)
    front(plan, UnitRows())

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step != s:
            return x
        first = x[0].clone()
        first[1] = 0.0
        return (first, *x[1:])

    plan.inputs.append(change)
    return said("division_by_zero", DATA, EXPLODING, layers=("0",), onset=(s, s))


def all_padding(plan: Plan, level: int) -> Label:
    """A row of padding only: the softmax has nothing to attend to."""
    s = start(plan)

    def change(step: int, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if step != s:
            return x
        t = x[0].clone()
        t[2] = torch.zeros_like(t[2])
        return (t,)

    plan.inputs.append(change)
    first = str(plan.info["softmax"][0])
    return said("attention_mask_all_inf", DATA, EXPLODING, layers=(first, first.rpartition(".")[0]), onset=(s, s))


_ALONE = frozenset({"dense", "float", "raw"})
SWITCHES = (
    Switch("op_forward", op_forward, frozenset({"dense", "hidden", "acts"})),
    Switch("log_of_zero", log_of_zero, _ALONE, levels=1, late=True),
    Switch("op_backward", op_backward, frozenset({"dense", "hidden", "acts"})),
    Switch(
        "same_pair",
        same_pair,
        frozenset({"pairs"}),
        levels=1,
        options=lambda level: {"traits": {"bare_root"}},
        late=True,
    ),
    Switch(
        "lone_node",
        lone_node,
        frozenset({"graph"}),
        levels=1,
        options=lambda level: {"traits": {"bare_degree"}},
        late=True,
    ),
    Switch("zero_row", zero_row, _ALONE, levels=1, late=True),
    Switch("all_padding", all_padding, frozenset({"padding"}), levels=1, late=True),
)
