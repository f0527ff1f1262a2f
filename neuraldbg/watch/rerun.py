"""One call of a module once more, with everything that it touches put back afterwards.

`untouched` gives the module stand-ins: parameters that share the values but carry no hooks and take the gradient
themselves, and copies of its buffers. `Watcher` sees every operator of the call, refuses one that would write into
memory that was there before, and remembers for each non-finite value which operator made it.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg.watch import operators
from neuraldbg.watch.held import Snapshot
from neuraldbg.watch.operators import Found, Where

_UNFILLED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class Stopped(BaseException):
    """Ends a replay from inside; no `except Exception` of a user's forward takes it for an error of his own."""


def sequence() -> int:
    """The number that the next autograd node gets; the nodes of a call are those between two such numbers."""
    return int(torch._C._autograd._get_sequence_nr())


class Watcher(TorchDispatchMode):
    """Follows the non-finite values of one call back to the operators that made them.

    places: id(module) -> its number. caller: the user's line that called the model. stop: the frame that ends walks of
    the stack. own: storages that the replay itself has made. found: operators that made non-finite values, in order;
    origins: storage -> the earliest of them that its values come from, by number.
    """

    def __init__(
        self, places: Mapping[int, int], caller: tuple[str, int] | None, stop: CodeType, deadline: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places, self.caller, self.stop, self.deadline = places, caller, stop, deadline
        self.own: set[int] = set()
        self.found: list[Found] = []
        self.origins: dict[int, int] = {}
        self.made: dict[int, Where] = {}
        self.phase = "forward"
        self.off = False
        self.stopped = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.off:
            return func(*args, **kwargs)
        if time.perf_counter() > self.deadline:
            self.halt("it took longer than replay_seconds")
        name = operators.plain_name(func._schema.name)
        given = [*operators.tensors(args), *operators.tensors(list(kwargs.values()))]
        written = self._written(func, args, kwargs)
        before = self._state(name, given, args, kwargs) if written else None
        if self.phase == "forward":
            self.made.setdefault(sequence() - 1, self._where())
        out = func(*args, **kwargs)
        self._look(name, given, before, args, kwargs, list(operators.tensors(out)))
        return out

    def halt(self, why: str) -> None:
        self.stopped = self.stopped or why
        raise Stopped

    def _written(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether the operator writes into its arguments; into memory that is not the replay's own it must not."""
        if not func._schema.is_mutable:
            return False
        for k, declared in enumerate(func._schema.arguments):
            if declared.alias_info is None or not declared.alias_info.is_write:
                continue
            value = args[k] if k < len(args) else kwargs.get(declared.name)
            for t in operators.tensors(value):
                if (where := operators.storage(t)) and where not in self.own:
                    self.halt("the forward writes into tensors that outlive it")
        return True

    def _state(
        self, name: str, given: list[Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[bool, bool, str]:
        return *operators.kinds(given), operators.reason(name, args, kwargs)

    def _where(self) -> Where:
        return operators.where(sys._getframe(2), self.stop, self.places, self.caller)

    def _look(
        self, name: str, given: list[Tensor], before: tuple[bool, bool, str] | None,
        args: tuple[Any, ...], kwargs: Mapping[str, Any], made: list[Tensor],
    ) -> None:  # fmt: skip
        sources = {operators.storage(t) for t in given}
        fresh = name == "lift_fresh"
        for t in made:
            if fresh or operators.storage(t) not in sources:
                self.own.add(operators.storage(t))
                self.origins.pop(operators.storage(t), None)
        nan, inf = operators.kinds(made)
        if not (nan or inf) or name in _UNFILLED:
            if before is not None:  # overwritten by finite values
                for t in made:
                    self.origins.pop(operators.storage(t), None)
            return
        tainted = [t for t in given if operators.storage(t) in self.origins and (before or not operators.finite(t))]
        origin = min((self.origins[operators.storage(t)] for t in tainted), default=None)
        if origin is None:
            nan_given, inf_given, why = before or self._state(name, given, args, kwargs)
            scalars = [*operators.numbers(args), *operators.numbers(list(kwargs.values()))]
            told = any(v - v != 0 for v in scalars)  # an infinity that the user wrote: a mask, and no accident
            if nan_given or not (nan or not (inf_given or told)):
                return
            where, origin = self._where(), len(self.found)
            detail = why or ("" if nan else "overflow")
            self.found.append(Found(name, self.phase, where.place, where.file, where.line, detail))
        for t in made:
            if not operators.finite(t):
                self.origins[operators.storage(t)] = origin


def parts(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """All tensors in tuples, lists, dicts, dataclasses and packed sequences."""
    if isinstance(value, Tensor):
        yield value
        return
    if depth == 0 or value is None:
        return
    if isinstance(value, Mapping):
        inside: Any = value.values()
    elif isinstance(value, (tuple, list)):
        inside = value
    else:
        inside = getattr(value, "__dict__", {}).values() if hasattr(value, "__dataclass_fields__") else ()
    for part in inside:
        yield from parts(part, depth - 1)


def own_containers(value: Any) -> Any:
    """The same tensors in lists and dicts of our own, so that a forward that fills a list given to it fills ours."""
    if type(value) is list:
        return [own_containers(v) for v in value]
    if type(value) is tuple:
        return tuple(own_containers(v) for v in value)
    if type(value) is dict:
        return {k: own_containers(v) for k, v in value.items()}
    return value


@contextlib.contextmanager
def untouched(module: nn.Module, own: set[int]) -> Iterator[dict[int, nn.Parameter]]:
    """Inside, the module runs on stand-ins; afterwards it and the random generators are as they were.

    Gives id(parameter) -> its stand-in. Attributes are put back as `held.Snapshot` says.
    `own` takes the storages of the copies.
    """
    saved = [(m, dict(m.__dict__)) for m in module.modules()]
    filled = Snapshot(module)
    parameters: dict[int, nn.Parameter] = {}
    copies: dict[int, Tensor] = {}

    def copied(t: Any) -> Any:
        if not isinstance(t, Tensor) or isinstance(t, nn.Parameter):
            return t
        if id(t) not in copies:
            copies[id(t)] = t.detach().clone().requires_grad_(t.requires_grad)
            own.add(operators.storage(copies[id(t)]))
        return copies[id(t)]

    def stand_in(p: nn.Parameter | None) -> nn.Parameter | None:
        if p is None or isinstance(p, nn.parameter.UninitializedParameter):
            return p
        return parameters.setdefault(id(p), nn.Parameter(p.detach(), requires_grad=p.requires_grad))

    with _generators(), torch.no_grad():
        try:
            for m, attributes in saved:
                for key, value in attributes.items():
                    if isinstance(value, Tensor):
                        m.__dict__[key] = copied(value)
                m.__dict__["_parameters"] = {k: stand_in(p) for k, p in attributes["_parameters"].items()}
                m.__dict__["_buffers"] = {k: copied(b) for k, b in attributes["_buffers"].items()}
                m.__dict__["_compiled_call_impl"] = None  # eager, whatever was compiled
            yield parameters
        finally:
            filled.restore()
            for m, attributes in saved:
                for key in [k for k in m.__dict__ if k not in attributes]:
                    del m.__dict__[key]
                for key, value in attributes.items():
                    if m.__dict__.get(key) is not value:
                        m.__dict__[key] = value


@contextlib.contextmanager
def _generators() -> Iterator[None]:
    """Random numbers drawn inside are drawn again afterwards: torch's, Python's and NumPy's."""
    cpu = torch.get_rng_state()
    others = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    python, legacy = random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if others is not None:
            torch.cuda.set_rng_state_all(others)
        random.setstate(python)
        numpy.random.set_state(legacy)


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Parts that torch.compile wrapped run as they were written. Dynamo is not loaded for it where nobody uses it."""
    stance = getattr(torch.compiler, "set_stance", None)
    with stance("force_eager") if stance and "torch._dynamo" in sys.modules else contextlib.nullcontext():
        yield


def on_nodes(roots: list[Tensor], since: int, hook: Callable[[Any], Callable[..., None]]) -> None:
    """Hang `hook(node)` on the nodes below these tensors that were made since; older ones are the user's."""
    queue, seen = [t.grad_fn for t in roots], set[Any]()
    while queue:
        node = queue.pop()
        if node is None or node in seen or "AccumulateGrad" in node.name() or node._sequence_nr() < since:
            continue
        seen.add(node)
        node.register_hook(hook(node))
        queue.extend(n for n, _ in node.next_functions)
