"""The search for the operator: the calls of a step that was not finite run again, and the loss's graph is read."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.watch import hooks, lossgraph, operators, rerun
from neuraldbg.watch.forward import first_tensor
from neuraldbg.watch.held import Snapshot
from neuraldbg.watch.lossgraph import LossGraph
from neuraldbg.watch.operators import Found
from neuraldbg.watch.rerun import Stopped, Watcher

if TYPE_CHECKING:
    from neuraldbg.watch.replay import Replay

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

MISCOMPILED = (
    "run again without torch.compile, the same batch gives finite outputs where the compiled model did not:"
    " suspect the compiled code (TORCHDYNAMO_DISABLE=1 to compare)"
)


class Declined(Exception):
    """A reason for which no replay can be made."""


@dataclass
class Call:
    """One call of a watched module by the user's loop. start, end: autograd's node numbers around it."""

    index: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int
    versions: tuple[int, ...]
    buffers: tuple[tuple[int, int], ...]
    training: bool
    caller: tuple[str, int] | None
    autocast: torch.dtype | None
    random: Tensor | None = None
    end: int | None = None
    output: weakref.ref[Tensor] | None = None
    moved: bool = False


@dataclass
class Rerun:
    """What a call gave when it ran again. offset: from its nodes' numbers to those of the first time."""

    outputs: list[Tensor]
    watcher: Watcher
    offset: int
    nodes: int
    bad: set[int] = field(default_factory=set)


class Search:
    """One replay of the step that `replay` remembers, until `deadline`."""

    def __init__(self, replay: Replay, deadline: float) -> None:
        self.replay, self.session, self.deadline = replay, replay.session, deadline

    @staticmethod
    def _entered(call: Call) -> Found | None:
        """The batch itself was bad: which kind of value, for a step whose inputs were not measured.

        Minus infinity is how masks are written, and no fault.
        """
        given = [x for x in (first_tensor(v) for v in (*call.args, *call.kwargs.values())) if x is not None]
        floats = [x.detach() for x in given if x.is_floating_point()]
        if any(bool(torch.isnan(x).any()) for x in floats):
            return Found(None, "input", call.index, detail="nan")
        if any(bool(torch.isposinf(x).any()) for x in floats):
            return Found(None, "input", call.index, detail="inf")
        return None

    def find(self, trigger: str) -> tuple[Found | None, str]:
        """(what was found, what there is to say where nothing was)."""
        graph = self.replay.graph or LossGraph()
        if trigger == "gradient" and (found := lossgraph.of_derivative(graph)) is not None:
            return self._in_loss(found), ""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise Declined("a process group is open: the other ranks would wait")
        if any(not operators.finite(p.detach()) for w in self.session.parameters.items if (p := w.ref()) is not None):
            return None, "the weights were not finite before this step"
        spans: list[tuple[int, int]] = []
        calls, cut = list(self.replay.calls), None
        for k, call in enumerate(calls):
            module = self._module(call)
            own: set[int] = set()
            with rerun.untouched(module, own) as stand_ins:
                again = self._forward(call, module, own)
                spans.append((call.start, call.end or call.start + again.nodes))
                entered = self._entered(call)
                if entered is not None and (again.bad or trigger == "gradient"):
                    return entered, ""  # a bounded function hides an infinity, its derivative does not
                if again.bad:
                    known = [again.watcher.origins[s] for s in again.bad if s in again.watcher.origins]
                    if not known:
                        return None, "what entered the model was not finite"
                    return again.watcher.found[min(known)], ""
                cut = cut or next(iter(again.watcher.found), None)
                if trigger == "gradient" and (found := self._backward(again, graph.reached.get(k), stand_ins)):
                    return found, ""
        if trigger == "gradient":
            return None, "no derivative was found that is not finite; the operator is unknown"
        graph.operations = [o for o in graph.operations if not any(low <= o.number < high for low, high in spans)]
        found = lossgraph.of_value(graph)
        if self.session.compiled and (found is None or found.operator in lossgraph.CLOSED) and cut is None:
            return None, MISCOMPILED
        if found is not None:
            return self._in_loss(found), ""
        if cut is not None:  # made inside, and handed to the loss by another way than the output
            return cut, ""
        return None, "the model's outputs are finite and the loss is not; its operator is unknown"

    def _in_loss(self, found: Found) -> Found:
        """With the line that started backward: the operator's own line is known to nobody any more."""
        line = operators.users_line(sys._getframe(1)) or (None, None)
        return Found(found.operator, found.phase, None, line[0], line[1], found.detail)

    def _module(self, call: Call) -> nn.Module:
        """The module of a call, unless there is a reason not to call it again."""
        module = self.session.forward.places[call.index].ref()
        if module is None:
            raise Declined("the model is gone")
        if call.moved:
            raise Declined("the weights have moved on since this forward")
        if module.training is not call.training:
            raise Declined("the model was switched between training and evaluation since")
        if versions(call.args, call.kwargs) != call.versions:
            raise Declined("the batch was changed in place since")
        if self.replay.buffer_versions(call.index) != call.buffers:
            raise Declined("the forward changes buffers of its own, a second one would not be the same")
        if any(hasattr(a, "__next__") for a in (*call.args, *call.kwargs.values())):
            raise Declined("the batch is an iterator and is used up")
        for name, m in module.named_modules():
            if isinstance(m, torch.jit.ScriptModule):
                raise Declined("the model is a script")
            others = [h for kind in _HOOKS for h in getattr(m, kind).values() if not _known(h)]
            if others:
                raise Declined(f"a hook hangs on module {name!r} that would run a second time")
        if any(getattr(nn.modules.module, f"_global{kind}", None) for kind in _HOOKS):
            raise Declined("a hook hangs on all modules that would run a second time")
        if odd := Snapshot(module).odd:
            raise Declined(f"{odd}, which a second forward could change")
        return module

    def _forward(self, call: Call, module: nn.Module, own: set[int]) -> Rerun:
        """The call once more, eagerly, in its autocast and from its random state."""
        places = {id(m): i for i, p in enumerate(self.session.forward.places) if (m := p.ref()) is not None}
        watcher = Watcher(places, call.caller, _invoke.__code__, self.deadline)
        watcher.own = own
        if call.random is not None:
            torch.set_rng_state(call.random)
        autocast = torch.autocast("cpu", dtype=call.autocast or torch.bfloat16, enabled=call.autocast is not None)
        start = rerun.sequence()
        try:
            with rerun.eager(), autocast, torch.enable_grad(), watcher:
                output = _invoke(module, rerun.own_containers(call.args), rerun.own_containers(call.kwargs))
        except Stopped:
            raise Declined(watcher.stopped) from None
        if watcher.stopped:
            raise Declined(watcher.stopped)
        nodes = rerun.sequence() - start
        outputs = list(rerun.parts(output))
        bad = {operators.storage(t) for t in outputs if not operators.finite(t)}
        bad = {s for s in bad if s in watcher.origins} or {
            operators.storage(t) for t in outputs if operators.kinds([t])[0]
        }
        return Rerun(outputs, watcher, call.start - start, nodes, bad)

    def _backward(self, again: Rerun, reached: set[int] | None, stand_ins: dict[int, nn.Parameter]) -> Found | None:
        """The first node below the outputs that turns finite gradients into others, and that reaches the parameters."""
        roots = [t for t in again.outputs if t.grad_fn is not None]
        if reached:
            used = [t for t in roots if t.grad_fn is not None and t.grad_fn._sequence_nr() + again.offset in reached]
            roots = used or roots
        real = [
            (p, s)
            for w in self.session.parameters.items
            if (p := w.ref()) is not None and (s := stand_ins.get(id(p))) is not None
        ]
        wanted = [(p, s) for p, s in real if s.requires_grad]
        if not roots or not wanted:
            return None
        watcher, first = again.watcher, _FirstNode(again.watcher)
        watcher.phase, watcher.found, watcher.origins, watcher.caller = "backward", [], {}, None
        rerun.on_nodes(roots, rerun.sequence() - again.nodes, first.hook)
        upstream = [_gradient_like(t) for t in roots]
        try:
            with torch.autograd.set_detect_anomaly(False), watcher:
                grads = torch.autograd.grad(roots, [s for _, s in wanted], upstream, allow_unused=True)
        except Stopped:
            raise Declined(watcher.stopped) from None
        both = any(
            g is not None and p.grad is not None and not operators.finite(g) and not operators.finite(p.grad)
            for (p, _), g in zip(wanted, grads, strict=True)
        )
        return first.found if both else None


class _FirstNode:
    """Hooks on the nodes of a replayed graph; remembers the first with finite gradients above it and others below."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.found: Found | None = None

    def hook(self, node: Any) -> Any:
        name, number, custom = operators.node_name(node), node._sequence_nr(), operators.is_custom(node)

        def look(below: Any, above: Any) -> None:
            if self.found is not None or self.watcher.off:
                return
            self.watcher.off = True  # what is computed here is no operator of the model
            try:
                if all(map(operators.finite, operators.tensors(above))) and not all(
                    map(operators.finite, operators.tensors(below))
                ):
                    self.found = self._describe(name, number, custom)
            finally:
                self.watcher.off = False

        return look

    def _describe(self, name: str, number: int, custom: bool) -> Found:
        """A function of the user's own: the operator inside its backward; others: where they were called."""
        made = self.watcher.made.get(number)
        inside = self.watcher.found[0] if self.watcher.found else None
        place = made.place if made else None
        if custom and inside is not None and inside.file is not None:
            return Found(inside.operator, "backward", place, inside.file, inside.line, inside.detail)
        return Found(name, "backward", place, made.file if made else None, made.line if made else None)


def _invoke(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The frame at which walks of the stack end."""
    return module(*args, **kwargs)


def _gradient_like(t: Tensor) -> Tensor:
    """A gradient for an output whose own is gone: positive and uneven, so that nothing cancels by symmetry."""
    values = torch.linspace(0.5, 1.5, t.numel(), device=t.device) / max(1, t.shape[0] if t.dim() else 1)
    return values.to(t.dtype).reshape(t.shape)


def versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    return tuple(_tensor_versions((*args, *kwargs.values())))


def _tensor_versions(values: tuple[Any, ...]) -> Iterator[int]:
    for t in rerun.parts(values):
        yield -1 if t.is_inference() else t._version


def _known(hook: Any) -> bool:
    """Ours, or torch's own (weight norm, spectral norm, pruning compute a weight there)."""
    return isinstance(hook, (hooks._Hook, hooks.Silent)) or str(getattr(hook, "__module__", "")).startswith(
        ("torch.", "neuraldbg.watch.")
    )
