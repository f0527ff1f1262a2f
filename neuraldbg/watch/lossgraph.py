"""Operators of the loss outside the model, read from the autograd graph between the loss and the model's output.

Autograd keeps the arguments of an operator whose derivative needs them. From them follows, where the loss is not
finite, which operator made it so, and where a gradient is not finite, whether an operator's derivative is to blame.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from neuraldbg.watch import operators
from neuraldbg.watch.operators import Found

CLOSED = ("log_softmax", "softmax", "sigmoid", "tanh")  # of finite arguments they make finite values
NODES = 200  # of one graph; a loss has about ten

Saved = dict[str, Any]

_RESULT: dict[str, Callable[[Saved], Tensor]] = {
    "log": lambda s: torch.log(s["self"]),
    "log2": lambda s: torch.log2(s["self"]),
    "log10": lambda s: torch.log10(s["self"]),
    "log1p": lambda s: torch.log1p(s["self"]),
    "acos": lambda s: torch.acos(s["self"]),
    "asin": lambda s: torch.asin(s["self"]),
    "atanh": lambda s: torch.atanh(s["self"]),
    "acosh": lambda s: torch.acosh(s["self"]),
    "div": lambda s: s["self"] / s["other"],
    "mul": lambda s: s["self"] * s["other"],
    "pow": lambda s: s["self"] ** s["exponent"],
    "mse_loss": lambda s: F.mse_loss(s["self"], s["target"], reduction="none"),
    "binary_cross_entropy": lambda s: F.binary_cross_entropy(s["self"], s["target"], reduction="none"),
}

_DERIVATIVE: dict[str, Callable[[Saved], Tensor]] = {
    "sqrt": lambda s: 0.5 / s["result"],
    "rsqrt": lambda s: s["result"] ** 3,
    "reciprocal": lambda s: s["result"] ** 2,
    "log": lambda s: 1 / s["self"],
    "log2": lambda s: 1 / s["self"],
    "log10": lambda s: 1 / s["self"],
    "log1p": lambda s: 1 / (1 + s["self"]),
    "acos": lambda s: torch.rsqrt(1 - s["self"] ** 2),
    "asin": lambda s: torch.rsqrt(1 - s["self"] ** 2),
    "atanh": lambda s: 1 / (1 - s["self"] ** 2),
    "acosh": lambda s: torch.rsqrt(s["self"] ** 2 - 1),
    "pow": lambda s: s["exponent"] * s["self"] ** (s["exponent"] - 1),
    "div": lambda s: s["self"] / s["other"] ** 2 if isinstance(s.get("self"), Tensor) else 1 / s["other"],
}


class Operation(NamedTuple):
    """One operator of the loss. number: of its node; below: those of the nodes that made its arguments."""

    name: str
    number: int
    below: tuple[int, ...]
    saved: Saved


@dataclass
class LossGraph:
    """What was seen between a loss and the models' outputs; the references last until the backward pass has ended.

    suspects: operators whose derivative has a singular point; operations: all of them, of a loss that is not finite.
    reached: call -> numbers of its nodes from which the loss was made.
    """

    suspects: list[tuple[str, Saved]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    reached: dict[int, set[int]] = field(default_factory=dict)


def walk(root: Any, spans: list[tuple[int, int]], whole: bool, since: int = 0) -> LossGraph:
    """Go down from the loss to the first nodes of the model's calls; call k made the nodes spans[k][0] <= n < [1].

    whole: keep what autograd saved of every operator, not of the suspects alone. since: the number of the first node
    whose saved values may be read.
    """
    graph = LossGraph()
    queue, seen = deque([root]), set[Any]()
    while queue and len(seen) < NODES:
        node = queue.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name()
        if "AccumulateGrad" in name or "Compiled" in name:
            continue
        number = node._sequence_nr()
        call = next((k for k, (low, high) in enumerate(spans) if low <= number < high), None)
        if call is not None:
            graph.reached.setdefault(call, set()).add(number)
            continue
        plain = operators.node_name(node)
        below = [n for n, _ in node.next_functions]
        if number >= since and (whole or plain in _DERIVATIVE):
            saved = _saved(node)
            if plain in _DERIVATIVE:
                graph.suspects.append((plain, saved))
            if whole:
                graph.operations.append(
                    Operation(plain, number, tuple(n._sequence_nr() if n else -1 for n in below), saved)
                )
        queue.extend(below)
    return graph


def _saved(node: Any) -> Saved:
    """What autograd keeps of this operator: attributes _saved_x, as far as they can be read."""
    out: Saved = {}
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except (RuntimeError, AttributeError):  # freed, or changed in place since
                continue
            out[name.removeprefix("_saved_")] = value.detach() if isinstance(value, Tensor) else value
    return out


def of_derivative(graph: LossGraph) -> Found | None:
    """The operator of the loss, next to the loss first, whose derivative is not finite at its own arguments."""
    for name, saved in graph.suspects:
        if _bad(_DERIVATIVE[name], saved):
            return Found(name, "backward", detail="zero_argument" if name in ("sqrt", "pow") else "")
    return None


def of_value(graph: LossGraph) -> Found | None:
    """The operator of the loss that made it non-finite, next to the model first.

    The model's outputs are known to be finite. Where an operator that keeps nothing (a sum, a difference) made it, the
    next one's argument shows it.
    """
    names = {o.number: o.name for o in graph.operations}
    for name, _, below, saved in sorted(graph.operations, key=lambda o: o.number):
        if empty := _empty(name, saved):
            return Found(name, "loss", detail=empty)
        results = [v for k, v in saved.items() if k in ("result", "output") and isinstance(v, Tensor)]
        given = {k: v for k, v in saved.items() if k not in ("result", "output") and isinstance(v, Tensor)}
        bad = next((k for k, v in given.items() if operators.kinds([v])[0]), None)
        if bad is not None:
            argument = {"self": 0, "other": 1}.get(bad, len(below))  # anything else (a target, a weight) is data
            source = names.get(below[argument]) if argument < len(below) else None
            return Found(source, "loss") if source else None
        if not all(operators.finite(t) for t in results) or (name in _RESULT and _bad(_RESULT[name], saved)):
            args = (saved.get("self"), *[saved[k] for k in ("other", "exponent", "dim") if k in saved])
            return Found(name, "loss", detail=operators.reason(name, args, {}))
    return None


def _empty(name: str, saved: Saved) -> str:
    """A mean over nothing: no element was left, or every label is the one to be ignored."""
    if name == "mean" and (saved.get("self_sym_numel") == 0 or 0 in tuple(saved.get("self_sym_sizes") or ())):
        return "empty"
    weight = saved.get("total_weight")
    if name == "nll_loss" and saved.get("reduction") == 1 and isinstance(weight, Tensor) and bool((weight == 0).all()):
        return "empty"
    return ""


def _bad(formula: Callable[[Saved], Tensor], saved: Saved) -> bool:
    """Whether the formula gives a value that is not finite; False where something that it needs was not kept."""
    try:
        with torch.no_grad():
            value = formula(saved)
    except (KeyError, TypeError, RuntimeError):
        return False
    return not operators.finite(value) if isinstance(value, Tensor) else not math.isfinite(value)
