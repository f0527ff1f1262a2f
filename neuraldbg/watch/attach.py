"""Which hooks hang on the models, and when.

Always: one pre-hook where the model is entered and one post-accumulate-grad hook a parameter. On sampled steps: a
pre-hook and a hook on every module. Those of modules that run eagerly are taken off in between, since a hook that does
nothing still costs a microsecond a call; those of traced modules stay, since taking them off would recompile.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import nn

from neuraldbg.watch import hooks, structure

if TYPE_CHECKING:
    from neuraldbg.watch.forward import Place
    from neuraldbg.watch.session import Session


class Attachment:
    """The handles of one session's hooks."""

    def __init__(self) -> None:
        self.fixed: list[tuple[int, Any]] = []
        self.inner: dict[int, list[Any]] = {}
        self.entries: set[int] = set()
        self.awake = True
        self.wrappers: dict[int, weakref.ref[nn.Module]] = {}

    def hang(self, session: Session, number: int, wrapper: nn.Module) -> None:
        """Hang all hooks of one model; `wrapper` is the compiled wrapper where there is one, else the model."""
        numbers = [i for i, p in enumerate(session.forward.places) if p.model == number]
        model = session.forward.places[numbers[0]].ref()
        known = self.wrappers.setdefault(number, weakref.ref(wrapper))()  # after a pause only the model is given
        wrapper = wrapper if known is None else known
        for k in range(len(session.parameters.items)):
            if session.names.parameter_model[k] == number:
                self.hang_parameter(session, number, k)
        places = [session.forward.places[i] for i in numbers]
        root = places[0]
        if wrapper is not model:  # hooks of a module that is not torch's own are called outside the graph
            root.hidden = model is not None and not type(model).forward.__module__.startswith("torch.")
        elif root.in_place or root.hidden:
            root.hidden = True
        else:
            self._hide_blocks(session, places)
        if session.compiled:
            for place in places:  # blocks inside are traced with the whole
                place.in_place = False
        for i in numbers:
            self.wake_one(session, i)
        self.entries.add(numbers[0])
        if wrapper is not model:  # the wrapper's own hooks run outside the compiled graph: inputs are seen there
            before, after = hooks.BeforeCompiled, hooks.AfterCompiled
        elif root.hidden:
            before, after = hooks.disabled()
        else:
            return
        entry = before(session, numbers[0])
        self.fixed.append((number, wrapper.register_forward_pre_hook(entry, with_kwargs=True)))
        self.fixed.append((number, wrapper.register_forward_hook(after(session, numbers[0]))))

    def around(self, session: Session, number: int, wrapper: nn.Module) -> None:
        """Notice whether forwards come through DistributedDataParallel, which alone prepares the all-reduce."""
        if isinstance(wrapper, nn.parallel.DistributedDataParallel):
            session.around = session.around or False
            self.fixed.append((number, wrapper.register_forward_pre_hook(hooks.Around(session, number))))

    def hang_parameter(self, session: Session, number: int, k: int) -> None:
        """Hang the hook of one parameter."""
        item = session.parameters.items[k]
        p = item.ref()
        if p is not None and p.requires_grad and not item.gone:
            handle = p.register_post_accumulate_grad_hook(hooks.AfterGradient(session, k))
            self.fixed.append((number, handle))

    def let_go(self, i: int) -> None:
        """Take the hooks of one module off, for it is no longer part of its model."""
        held = self.inner.get(i, [])
        while held:
            held.pop().remove()

    def _hide_blocks(self, session: Session, places: list[Place]) -> None:
        """Blocks that are compiled each by itself share a graph, which hooks that differ inside them would multiply."""
        blocks = tuple(p.name + "." for p in places if p.in_place or p.at is not None)
        for place in places:
            place.hidden = place.name.startswith(blocks)
        if any(p.hidden for p in places):
            session.notes.append(
                "no layer inside a block that is compiled by itself is looked at, only the block's output"
            )

    def wake_one(self, session: Session, i: int) -> None:
        """Hang the hooks of one module that has none."""
        place = session.forward.places[i]
        module = place.ref()
        if module is None or place.hidden or place.gone:
            return
        wrapper = place.at() if place.at is not None else None
        module = module if wrapper is None else wrapper
        before, after = hooks.disabled_forward() if place.in_place else (hooks.BeforeForward, hooks.AfterForward)
        held = self.inner.setdefault(i, [])
        if not held:
            held.append(module.register_forward_pre_hook(before(session, i), with_kwargs=True))
        if len(held) == 1:
            passing = isinstance(module, structure.PASSING)
            hook = after(session, i, place, passing)
            held.append(module.register_forward_hook(hook))

    def wake(self, session: Session) -> None:
        """For a sampled step: every module has its hooks."""
        if not self.awake:
            for i in range(len(session.forward.places)):
                self.wake_one(session, i)
            self.awake = True

    def rest(self, session: Session) -> None:
        """Between sampled steps: only the entries of what runs eagerly keep their pre-hook."""
        if not self.awake:
            return
        for i, held in self.inner.items():
            if session.forward.places[i].eager:
                keep = 1 if i in self.entries else 0
                while len(held) > keep:
                    held.pop().remove()
        self.awake = False

    def remove(self, session: Session, number: int | None = None) -> None:
        """Take the hooks off (of one model, or all)."""
        for owner, handle in self.fixed:
            if number is None or owner == number:
                handle.remove()
        self.fixed = [(n, h) for n, h in self.fixed if number is not None and n != number]
        for i, held in self.inner.items():
            if number is None or session.forward.places[i].model == number:
                while held:
                    held.pop().remove()
