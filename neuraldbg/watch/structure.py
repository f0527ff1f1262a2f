"""What the modules are, and how the autograd graph joins them: order, outputs, functional activations, residuals."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

from torch import Tensor, nn

from neuraldbg.record import ModuleFacts

RECTIFIERS = (nn.ReLU, nn.ReLU6)
LEAKY = (nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.SELU, nn.CELU, nn.Softplus)
SMOOTH = (nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish)
NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []),
)
PASSING = (*NORMS, nn.modules.dropout._DropoutNd)
"""Whose output a compiler need not keep, since the next operator reads it as it is made: a look at it makes it kept
(measured on a convolutional net: six batch norms, 7 % of a step)."""
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
NODES = 20000  # nodes of one autograd graph that are walked; a 1,000-module model has about 10,000

_FUNCTIONAL = {
    "ReluBackward0": "relu",
    "ReluBackward1": "relu",
    "TanhBackward0": "tanh",
    "SigmoidBackward0": "sigmoid",
    "GeluBackward0": "glu",
    "SiluBackward0": "glu",
    "LeakyReluBackward0": "leaky",
    "EluBackward0": "leaky",
}


def inner_of(module: nn.Module) -> nn.Module | None:
    """What `torch.compile` wrapped here; None for any other module."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model below compiled and parallel wrappers."""
    while True:
        inner = model.module if isinstance(model, PARALLEL) else inner_of(model)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def activation_of(module: nn.Module) -> str:
    """relu, leaky, tanh, sigmoid, softmax, glu or "": the family of an activation module."""
    if isinstance(module, RECTIFIERS):
        return "relu"
    if isinstance(module, (nn.Tanh, nn.Softsign)):
        return "tanh"
    if isinstance(module, nn.Sigmoid):
        return "sigmoid"
    if isinstance(module, nn.Softmax):
        return "softmax"
    if isinstance(module, LEAKY):
        return "leaky"
    return "glu" if isinstance(module, SMOOTH) else ""


def describe(name: str, module: nn.Module) -> ModuleFacts:
    """The facts that the module object itself gives."""
    own = list(module.parameters(recurse=False))
    own = [p for p in own if not isinstance(p, nn.parameter.UninitializedParameter)]
    weight = module._parameters.get("weight")  # a parametrised one is computed when asked for, and may change by it
    lazy = isinstance(weight, nn.parameter.UninitializedParameter)
    width = weight.shape[0] if isinstance(weight, Tensor) and not lazy and weight.dim() > 1 else None
    return ModuleFacts(
        name=name,
        kind=type(module).__name__,
        activation=activation_of(module),
        parameters=sum(p.numel() for p in own),
        trainable=sum(p.numel() for p in own if p.requires_grad),
        width=width,
        norm_over=_normalized(module) if isinstance(module, nn.LayerNorm) else None,
        recurrent=isinstance(module, nn.RNNBase),
        container=next(module.children(), None) is not None,  # a compiled child has a length that cannot be asked for
    )


def _normalized(module: nn.Module) -> int | None:
    """How many values a layer norm takes together; a subclass may have left that out."""
    shape = getattr(module, "normalized_shape", None)
    return math.prod(shape) if isinstance(shape, (tuple, list)) else None


def norm_count(module: nn.Module, x: Tensor) -> int | None:
    """How many values one of a norm's means is taken over, for this input."""
    if isinstance(module, nn.LayerNorm):
        return _normalized(module)
    if isinstance(module, nn.GroupNorm):
        return x.numel() // (x.shape[0] * module.num_groups) if x.dim() > 1 else None
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
        return x.numel() // x.shape[1] if x.dim() > 1 else None
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return math.prod(x.shape[2:]) if x.dim() > 2 else None
    if hasattr(nn, "RMSNorm") and isinstance(module, nn.RMSNorm):
        return _normalized(module)
    return None


class GraphNotes:
    """What walks of the autograd graph of the first steps have shown; grows, then is read."""

    def __init__(self) -> None:
        self.functional: dict[int, str] = {}
        self.outputs: set[int] = set()
        self.feeding: set[int] = set()
        self.structure: set[str] = set()

    def walk(self, root: Any, owners: dict[Any, int], norms: set[int]) -> None:
        """Walk from the loss's node down. `owners` maps the node of a module's output to the module's number."""
        consumers: Counter[Any] = Counter()
        queue: deque[tuple[Any, int]] = deque([(root, -1)])  # nodes with the nearest module above (towards the loss)
        seen: set[Any] = set()
        while queue and len(seen) < NODES:
            node, above = queue.popleft()
            if node is None:
                continue
            consumers[node] += 1
            here = owners.get(node)
            if here is not None and above >= 0 and here != above:
                self.feeding.add(here)
            elif here is not None and above < 0:
                self.outputs.add(here)
            if node in seen:
                continue
            seen.add(node)
            nearest = here if here is not None else above
            name = node.name()
            for child, _ in node.next_functions:
                if child is None:
                    continue
                owner = owners.get(child)
                if owner is not None and here is None and name in _FUNCTIONAL:
                    self.functional[owner] = _FUNCTIONAL[name]
                queue.append((child, nearest))
        self._post_norm(owners, consumers, norms)

    def _post_norm(self, owners: dict[Any, int], consumers: Counter[Any], norms: set[int]) -> None:
        """Post-norm: the sums that norms read are read by nothing else (in pre-norm the stream goes on beside)."""
        sums = [
            consumers[child]
            for node, k in owners.items()
            if k in norms
            for child, _ in node.next_functions
            if child is not None and child.name() == "AddBackward0"
        ]
        if len(sums) >= 2 and sum(c == 1 for c in sums) > len(sums) / 2:
            self.structure.add("post_norm")


def is_residual(args: tuple[Any, ...], out: Tensor) -> bool:
    """Whether a module's output is a sum in which its own input takes part directly."""
    node = out.grad_fn
    if node is None or node.name() != "AddBackward0" or not args or not isinstance(args[0], Tensor):
        return False
    source = args[0].grad_fn
    return source is not None and any(n is source for n, _ in node.next_functions)
