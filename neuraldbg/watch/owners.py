"""Which modules an optimizer trains: found from its parameters, without a hook on any module.

A global forward hook would see the model too, but makes `torch.compile` warn at every compiled module that is called.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer


def alive(kind: type) -> list[object]:
    """All objects of this kind that the collector knows; by `type()`, for a proxy's `isinstance` may have effects."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def optimizers() -> list[Optimizer]:
    return [o for o in alive(Optimizer) if isinstance(o, Optimizer) and hasattr(o, "param_groups")]


def owners(optimizer: Optimizer) -> list[nn.Module]:
    """The root-most modules that own parameters of the optimizer, in the order of its parameters.

    A root that `torch.compile` wrapped is given as the wrapper, where the watcher can see its calls.
    """
    place = {id(p): i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    modules = [m for m in alive(nn.Module) if isinstance(m, nn.Module) and "_modules" in m.__dict__]
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            if child is not None:
                parents.setdefault(id(child), []).append(module)
    first: dict[int, int] = {}
    roots: dict[int, nn.Module] = {}
    for module in modules:
        places = [place[id(p)] for p in module._parameters.values() if p is not None and id(p) in place]
        for root in _tops(module, parents) if places else ():
            roots[id(root)] = root
            first[id(root)] = min(first.get(id(root), len(place)), *places)
    return [roots[key] for key in sorted(roots, key=first.__getitem__)]


def _tops(module: nn.Module, parents: dict[int, list[nn.Module]]) -> Iterable[nn.Module]:
    seen: dict[int, nn.Module] = {}
    waiting = [module]
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen[id(module)] = module
        waiting += parents.get(id(module), ())
    return [m for m in seen.values() if not parents.get(id(m))]
