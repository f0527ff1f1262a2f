"""What a model is made of can change while it is watched: parameters and modules that were replaced are taken in again.

`load_state_dict(assign=True)`, a parametrization, SyncBatchNorm, an adapter or sharding put new objects in the places
of old ones, and hooks stay with the old. So the identities are compared where a sampled step begins; lazy modules,
whose parameters get a shape in their first call, are taken in the same way.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from neuraldbg.watch import structure
from neuraldbg.watch.parameters import has_part

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session


def signature(model: nn.Module) -> int:
    """A number that changes when a module or a parameter of the model is another object than before."""
    parts: list[int] = []
    waiting = [model]
    while waiting:
        module = waiting.pop()
        parts.append(id(module))
        parts.extend(map(id, module._parameters.values()))
        waiting.extend(m for m in module._modules.values() if m is not None)
    return hash(tuple(parts))


def owner_of(session: Session, optimizer: Optimizer) -> int | None:
    """The number of an optimizer that has stepped, None if it holds no watched parameter.

    Now all of a sharded model's parameters are in their places, so this is where they are taken in.
    """
    k = session.parameters.owner_of(optimizer)
    if k is None and any(is_sharded(m) for _, ref in session.models if (m := ref()) is not None):
        refresh(session, stepped=True)
        k = session.parameters.owner_of(optimizer)
    return k


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP2 holds parameters of the model, which puts others in their places while a step is under way."""
    return any(kind.__name__ == "FSDPModule" for m in model.modules() for kind in type(m).__mro__)


def refresh(session: Session, stepped: bool = False) -> None:
    """Take in whatever is new; costs a look at every module when nothing is. `stepped`: an optimizer has just."""
    for number, (_, ref) in enumerate(session.models):
        model = ref()
        if model is None or number in session.dropped:
            continue
        now = signature(model)
        known = session.signatures.get(number)
        items = zip(session.parameters.items, session.names.parameter_model, strict=True)
        lost = any(of == number and w.ref() is None and not w.gone for w, of in items)
        if known != now or lost or session.parameters.lazy:
            _modules(session, number, model)
            if not stepped and is_sharded(model):
                continue
            _parameters(session, number, model)
            session.signatures[number] = now


def leave_out(session: Session, name: str, model: nn.Module, error: Exception) -> None:
    """A model that could not be taken in: what was hung comes off, and its training goes on unwatched."""
    session.note(f"{type(model).__name__} {name!r} is not watched: {type(error).__name__}: {error}")
    number = len(session.models) - 1
    if number < 0 or session.models[number][0] != name or number in session.signatures:
        return  # it failed before anything of it was taken in
    missing = len(session.parameters.items) - len(session.names.parameter_model)
    session.names.parameter_model += [number] * missing
    session.drop(number)


def _modules(session: Session, number: int, model: nn.Module) -> None:
    forward = session.forward
    known = {p.name: i for i, p in enumerate(forward.places) if p.model == number and not p.gone}
    named = dict(forward.named(model))
    for name, i in known.items():
        place, module = forward.places[i], named.get(name)
        if module is None:
            place.gone = True
            session.attachment.let_go(i)
        elif place.ref() is not module or place.facts.kind != type(module).__name__:
            if place.ref() is not module:
                session.attachment.let_go(i)
            place.ref, place.facts = weakref.ref(module), structure.describe(name, module)
            session.attachment.wake_one(session, i)
    new = [(name, module) for name, module in named.items() if name not in known]
    for i in forward.extend(number, model, new):
        session.attachment.wake_one(session, i)


def _parameters(session: Session, number: int, model: nn.Module) -> None:
    watch = session.parameters
    owners = session.names.parameter_model
    known = {(w.module, w.name): i for i, w in enumerate(watch.items) if owners[i] == number and not w.gone}
    places = {id(m): p.name for p in session.forward.places if p.model == number and (m := p.ref()) is not None}
    here = set()
    moved: dict[int, tuple[str, str]] = {}
    for path, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            key = (places.get(id(module), path), name)
            here.add(key)
            i = known.get(key)
            if i is None:
                moved[id(p)] = key
            elif watch.items[i].ref() is not p and not has_part(p):  # quantised since, say
                watch.items[i].gone = True
            elif watch.items[i].ref() is not p:
                watch.replace(i, p)
                session.attachment.hang_parameter(session, number, i)
    for key, i in known.items():
        item = watch.items[i]
        if key in here:
            continue
        new = moved.get(id(item.ref()))
        if new is None:
            item.gone = True
        else:  # the same tensor under another name: a parametrization, a module that took it over
            item.module, item.name = new
    session.names.parameters = []
    before = len(watch.items)
    watch.add(model, places)
    owners += [number] * (len(watch.items) - before)
    for i in range(before, len(watch.items)):
        session.attachment.hang_parameter(session, number, i)
    watch.forget_owners()
