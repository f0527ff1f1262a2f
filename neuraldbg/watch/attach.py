"""Which hooks hang on the models, and when.

Always: one pre-hook where the model is entered and one post-accumulate-grad hook a parameter. On sampled steps: a
pre-hook and a hook on every module. Those of modules that run eagerly are taken off in between, since a hook that does
nothing still costs a microsecond a call; those of traced modules stay, since taking them off would recompile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from neuraldbg.watch import hooks

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session


class Attachment:
    """The handles of one session's hooks."""

    def __init__(self) -> None:
        self.fixed: list[tuple[int, Any]] = []
        self.inner: dict[int, list[Any]] = {}
        self.entries: set[int] = set()
        self.awake = True

    def hang(self, session: Session, number: int, wrapper: nn.Module) -> None:
        """Hang all hooks of one model; `wrapper` is the compiled wrapper where there is one, else the model."""
        numbers = [i for i, p in enumerate(session.forward.places) if p.model == number]
        model = session.forward.places[numbers[0]].ref()
        for k, item in enumerate(session.parameters.items):
            p = item.ref()
            if session.names.parameter_model[k] == number and p is not None and p.requires_grad:
                handle = p.register_post_accumulate_grad_hook(hooks.AfterGradient(session, k))
                self.fixed.append((number, handle))
        root = session.forward.places[numbers[0]]
        if wrapper is not model:  # hooks of a module that is not torch's own are called outside the graph
            root.outside = not type(model).forward.__module__.startswith("torch.")
        for i in numbers:
            self._wake(session, i)
        self.entries.add(numbers[0])
        if wrapper is not model:  # the wrapper's own hooks run outside the compiled graph: inputs are seen there
            before, after = hooks.BeforeCompiled, hooks.AfterCompiled
        elif root.outside:
            before, after = hooks.disabled()
        else:
            return
        entry = before(session, numbers[0])
        self.fixed.append((number, wrapper.register_forward_pre_hook(entry, with_kwargs=True)))
        self.fixed.append((number, wrapper.register_forward_hook(after(session, numbers[0]))))

    def _wake(self, session: Session, i: int) -> None:
        place = session.forward.places[i]
        module = place.ref()
        if module is None or (place.outside and place.at is None):
            return
        module = (place.at() if place.at is not None else None) or module
        held = self.inner.setdefault(i, [])
        if not held:
            held.append(module.register_forward_pre_hook(hooks.BeforeForward(session, i), with_kwargs=True))
        if len(held) == 1:
            after = hooks.AfterForward(session, i, place.buffer, place.row, place.function, place.rectifies)
            held.append(module.register_forward_hook(after))

    def wake(self, session: Session) -> None:
        """For a sampled step: every module has its hooks."""
        if not self.awake:
            for i in range(len(session.forward.places)):
                self._wake(session, i)
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
