"""The loss as its own operator saw it: found in the autograd graph where backward starts (signal B).

Autograd keeps an operator's inputs for its backward pass; `NllLossBackward0._saved_target` is the target tensor itself.
So loss value, target range and the loss of a constant prediction come without the user's help, and are the same when
the loss is scaled, accumulated or regularised.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from neuraldbg.record import LossStats

NODES = 400  # nodes of the graph looked at from the loss downwards
FACTORS = 4  # of one loss that are undone: a scale, an accumulation count, and weights of one's own
VIEWS = 6  # between a cross-entropy and the softmax before it: reshapes and transpositions
TARGETS = 8  # of a batch; the deviation of fewer is no measure of an outlier
REDUCTION = {0: "none", 1: "mean", 2: "sum"}
KINDS = {
    "NllLossBackward0": "nll",
    "NllLoss2DBackward0": "nll",
    "MseLossBackward0": "mse",
    "BinaryCrossEntropyBackward0": "bce",
    "BinaryCrossEntropyWithLogitsBackward0": "bce_with_logits",
    "SmoothL1LossBackward0": "smooth_l1",
    "HuberLossBackward0": "huber",
}
LOSS_COLUMNS = ("value", "chance", "target_low", "target_high", "target_rms", "outlier", "output_low", "output_high")


@dataclasses.dataclass(frozen=True)
class FoundLoss:
    """A loss operator of this backward pass; `values` follow LOSS_COLUMNS, on the device."""

    kind: str
    reduction: str | None
    values: Tensor
    probabilities: bool
    sign: int = 1


def packing() -> bool:
    """Whether saved tensors go through somebody's hooks here (a checkpoint, offloading): reading one would run them."""
    ask = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if ask is None:
        return False
    try:
        return ask(False) is not None
    except TypeError:  # older versions take no argument
        return ask() is not None


def unscaled(loss: Tensor, since: int = 0) -> tuple[Tensor | None, bool]:
    """The loss before constant factors (GradScaler's scale, division by the accumulation count).

    Only a chain of multiplications by numbers without gradient is undone, and not the division of a sum by its count,
    which makes it a mean. Returns (value, whether anything was).
    since: the number of the first node whose saved values may be read; None where an older one is in the way.
    """
    node: Any = loss.grad_fn
    value, changed = loss.detach(), False
    for _ in range(FACTORS):
        name = node.name() if node is not None else ""
        if name not in ("MulBackward0", "DivBackward0"):
            break
        if node._sequence_nr() < since:
            return None, False
        left, right = (n for n, _ in node.next_functions)
        if (left is None) == (right is None) or (left is None and name == "DivBackward0"):
            break  # two factors that are learned, or a reciprocal of the loss
        other = _saved(node, "_saved_other" if right is None else "_saved_self")
        live = left if right is None else right
        if other is None or other.numel() != 1 or live.name() == "torch::autograd::AccumulateGrad":
            break
        if name == "DivBackward0" and _is_sum(live):
            break
        value = value / other if name == "MulBackward0" else value * other
        node, changed = live, True
    return value, changed


def _is_sum(node: Any) -> bool:
    """Whether a node adds up samples: a plain sum, or a loss operator whose reduction is one."""
    reduction = _saved(node, "_saved_reduction")
    return str(node.name()).startswith("SumBackward") or (REDUCTION.get(reduction) == "sum" if reduction else False)


def before_overflow(loss: Tensor | None, given: Tensor | None) -> Tensor | None:
    """The loss that a GradScaler was given, where the product with its scale is no number any more.

    Nothing waits for the device: both are at hand, and one is chosen there.
    """
    if loss is None or given is None or loss.device != given.device:
        return loss
    with torch.no_grad():
        given = given.to(loss.dtype).reshape(loss.shape)
        return torch.where(torch.isfinite(loss), loss, given)


def earlier(before: Tensor | None, now: Tensor) -> Tensor:
    """The loss of a step's latest backward pass, or that of one before it which was no number: it must not be lost.

    Nothing waits for the device.
    """
    if before is None or before.device != now.device or before.numel() != 1 or now.numel() != 1:
        return now
    with torch.no_grad():
        before = before.to(now.dtype).reshape(now.shape)
        return torch.where(torch.isfinite(before), now, before)


def _saved(node: Any, name: str) -> Any:
    try:
        return getattr(node, name)
    except (AttributeError, RuntimeError):  # not saved by this version, or freed already
        return None


def find_loss(root: Any, since: int = 0) -> FoundLoss | None:
    """The loss operator that weighs most: the first one met from the loss tensor downwards.

    since: the number of the first node whose saved values may be read.
    """
    queue: deque[tuple[Any, int]] = deque([(root, 1)])
    seen: set[Any] = set()
    while queue and len(seen) < NODES:
        node, sign = queue.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node._sequence_nr() < since:
            continue
        kind = KINDS.get(node.name())
        if kind:
            found = read_operator(node, kind)
            if found is not None:
                return dataclasses.replace(found, sign=sign)
        queue.extend((n, sign * s) for (n, _), s in zip(node.next_functions, _signs(node), strict=True))
    return None


def _signs(node: Any) -> list[int]:
    """By which sign each input enters this node's output, as far as negations and constant factors go."""
    name, count = node.name(), len(node.next_functions)
    if name in ("NegBackward0", "ReciprocalBackward0"):  # a smaller 1/x is a larger x
        return [-1] * count
    if name in ("AddBackward0", "SubBackward0") and count == 2:
        alpha = _saved(node, "_saved_alpha")
        turned = (name == "SubBackward0") != (isinstance(alpha, (int, float)) and alpha < 0)
        return [1, -1 if turned else 1]
    if name.startswith("RsubBackward"):
        return [-1] * count
    if name in ("MulBackward0", "DivBackward0"):
        constants = [_saved(node, "_saved_other")] if node.next_functions[-1][0] is None else []
        constants += (
            [_saved(node, "_saved_self")] if name == "MulBackward0" and node.next_functions[0][0] is None else []
        )
        known = [c for c in constants if isinstance(c, Tensor) and c.numel() == 1 and c.device.type == "cpu"]
        if any(float(c) < 0 for c in known):  # on an accelerator a look would wait for it
            return [-1] * count
    return [1] * count


def read_operator(node: Any, kind: str) -> FoundLoss | None:
    """What a loss operator's saved output and targets tell; None where they were not kept, or are empty."""
    output, target = _saved(node, "_saved_self"), _saved(node, "_saved_target")
    if output is None or target is None or not output.numel():
        return None
    with torch.no_grad():
        value, chance = _MEASURES[kind](output.detach(), target.detach(), node)
        values = torch.stack([v.double() for v in (value, chance, *target_stats(target.detach(), kind, node))])
        low, high = torch.aminmax(output.detach().double())
        values = torch.cat([values, low.reshape(1), high.reshape(1)])
    reduction = _saved(node, "_saved_reduction")
    probabilities = kind == "nll" and _softmax_below(node)
    return FoundLoss(kind, REDUCTION.get(reduction) if isinstance(reduction, int) else None, values, probabilities)


def _softmax_below(node: Any) -> bool:
    """Whether the log-softmax under a cross-entropy is fed by another softmax, views between them allowed."""
    for _ in range(VIEWS):
        following = [n for n, _ in node.next_functions if n is not None]
        if not following:
            return False
        node = following[0]
        name = node.name()
        if name == "SoftmaxBackward0":
            return True
        if not ("LogSoftmax" in name or "View" in name or "Transpose" in name or "Permute" in name):
            return False
    return False


def target_stats(target: Tensor, kind: str, node: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(low, high, rms, outlier: largest abs(t - median) / median absolute deviation)."""
    t = target.double().reshape(-1)
    nothing = t.new_full((), math.nan)
    if kind == "nll":
        left_out = t == _ignored(node)
        return t.masked_fill(left_out, math.inf).min(), t.masked_fill(left_out, -math.inf).max(), nothing, nothing
    low, high = torch.aminmax(t)
    centre = t.median()
    deviation = (t - centre).abs()
    outlier = deviation.max() / deviation.median().clamp_min(1e-12) if t.numel() >= TARGETS else nothing
    return low, high, (t * t).mean().sqrt(), outlier


def _ignored(node: Any) -> int:
    """The label that does not count; a negative one is kept without its sign."""
    ignore = _saved(node, "_saved_ignore_index")
    ignore = ignore if isinstance(ignore, int) else -100
    return ignore - 2**64 if ignore >= 2**63 else ignore


# Each gives (mean loss, that of the best constant prediction), both as scalars on the device.


def _nll(output: Tensor, target: Tensor, node: Any) -> tuple[Tensor, Tensor]:
    """output: log-probabilities [rows, classes, ...]; chance: the entropy of the batch's labels."""
    ignore = _ignored(node)
    weight = _saved(node, "_saved_weight")
    value = F.nll_loss(output.float(), target, weight.float() if weight is not None else None, ignore_index=ignore)
    classes = output.shape[1] if output.dim() > 1 else output.shape[0]
    labels = target.reshape(-1)
    labels = torch.where(labels == ignore, classes, labels).clamp(0, classes)  # what is ignored: a class of its own
    counted = torch.zeros(classes + 1, dtype=torch.float64, device=labels.device)
    counted = counted.scatter_add_(0, labels, counted.new_ones(()).expand_as(labels))[:classes]  # bincount would wait
    return value, torch.special.entr(counted / counted.sum()).sum()


def _binary_chance(target: Tensor) -> Tensor:
    """Entropy of the mean target; NaN where targets leave [0, 1] and there is no such thing."""
    mean = target.double().mean()
    inside = (target.min() >= 0) & (target.max() <= 1)
    chance = torch.special.entr(mean.clamp(0, 1)) + torch.special.entr((1 - mean).clamp(0, 1))
    return torch.where(inside, chance, chance.new_full((), math.nan))


def _bce(output: Tensor, target: Tensor, node: Any) -> tuple[Tensor, Tensor]:
    p = output.double().clamp(1e-12, 1 - 1e-12)
    t = target.double()
    return -(t * p.log() + (1 - t) * (1 - p).log()).mean(), _binary_chance(target)


def _bce_with_logits(output: Tensor, target: Tensor, node: Any) -> tuple[Tensor, Tensor]:
    z, t = output.double(), target.double()
    return (F.softplus(z) - t * z).mean(), _binary_chance(target)


def _squared(output: Tensor, target: Tensor, node: Any) -> tuple[Tensor, Tensor]:
    o, t = output.double(), target.double()
    centred = t - t.mean(0, keepdim=True) if t.dim() and t.shape[0] > 1 else t
    return ((o - t) ** 2).mean(), (centred**2).mean()


def _absolute(output: Tensor, target: Tensor, node: Any) -> tuple[Tensor, Tensor]:
    """Stands in for smooth L1 and Huber, which go over into it where errors are large."""
    o, t = output.double(), target.double()
    centred = t - t.median() if t.dim() and t.shape[0] > 1 else t
    return (o - t).abs().mean(), centred.abs().mean()


_MEASURES = {
    "nll": _nll,
    "mse": _squared,
    "bce": _bce,
    "bce_with_logits": _bce_with_logits,
    "smooth_l1": _absolute,
    "huber": _absolute,
}


def read(found: FoundLoss, numbers: list[float]) -> LossStats:
    """The statistics from the transferred numbers; what is not finite is not known."""
    named = {k: (v if math.isfinite(v) else None) for k, v in zip(LOSS_COLUMNS, numbers, strict=True)}
    return LossStats(found.kind, found.reduction, probabilities=found.probabilities, sign=found.sign, **named)
