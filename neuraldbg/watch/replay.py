"""The replay: where a step first turns non-finite on a CPU, its batch goes once more through the model.

During a step only references are kept: what entered the model, and how many autograd nodes there were. When the loss or
a gradient is not finite, the calls of the step are run again (`rerun`), which names the first operator with finite
inputs and a non-finite output, or the first derivative; operators of the loss are read from the graph (`lossgraph`).
Once in a session, and never where it could change the training; `docs/design/replay.md` has the rules.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.record import Culprit
from neuraldbg.watch import hooks, lossgraph, operators, rerun, signals
from neuraldbg.watch.lossgraph import LossGraph
from neuraldbg.watch.operators import Found
from neuraldbg.watch.rerun import Stopped, Watcher

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

HOST = "cpu"  # where a value can be read without waiting
CALLS = 8  # of the open step that are kept: a GAN makes four, a loop over time may make hundreds
FIRST = 4  # parameters one of whose gradients stands for all on light steps: a NaN runs down to the first layers
_C_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


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


def host_value(t: Tensor) -> float | None:
    """A one-element CPU tensor's value, read where it lies: no operator, nothing to wait for. None for other types."""
    if t.dtype in _C_TYPES:
        return float(_C_TYPES[t.dtype].from_address(t.data_ptr()).value)
    if t.dtype not in (torch.float16, torch.bfloat16):
        return None
    raw = ctypes.string_at(t.data_ptr(), 2)
    return float(struct.unpack("<e", raw)[0] if t.dtype is torch.float16 else struct.unpack("<f", b"\0\0" + raw)[0])


def _same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two states of a generator are equal, compared where they lie: no operator."""
    return ctypes.string_at(a.data_ptr(), a.nbytes) == ctypes.string_at(b.data_ptr(), b.nbytes)


def bad_value(t: Tensor | None) -> bool:
    """Whether a one-element tensor on the CPU is not finite; False where that cannot be told without waiting."""
    if t is None or t.device.type != "cpu" or t.numel() != 1:
        return False
    value = host_value(t)
    return value is not None and not math.isfinite(value)


class Replay:
    """The state of the open step, and the one replay of a session."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self.enabled = session.settings.replay and hasattr(torch._C._autograd, "_get_sequence_nr")
        self.device = HOST
        self.draws: dict[int, bool] = {}  # whether a call of this module draws random numbers
        self.buffers: dict[int, list[tuple[weakref.ref[nn.Module], str]]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the open step."""
        self.calls: deque[Call] = deque(maxlen=CALLS)
        self.graph: LossGraph | None = None
        self.loss_bad = False
        self.scaled: bool | None = None  # whether a GradScaler was given a loss that is not finite; None: no scaler
        self.found: Found | None = None

    @property
    def session(self) -> Session:
        session = self._session()
        assert session is not None  # it is the session that calls
        return session

    # --- what a step leaves behind ---------------------------------------------------------------

    def called(self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The user's loop calls a watched module."""
        place = self.session.forward.places[index]
        if not self.enabled:
            return
        self.device = place.buffer.device.type
        if self.device != HOST:
            return
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        call = Call(
            index=index,
            args=args,
            kwargs=kwargs,
            start=rerun.sequence(),
            versions=_versions(args, kwargs),
            buffers=self._buffer_versions(index),
            training=module.training,
            caller=operators.users_line(sys._getframe(1)),
            autocast=autocast,
        )
        if self.draws.get(index, True):
            call.random = torch.get_rng_state()
        self.calls.append(call)

    def returned(self, output: Any) -> None:
        """That call is over."""
        call = self.calls[-1] if self.calls else None
        if call is None or call.end is not None:
            return
        call.end = rerun.sequence()
        out = next(rerun.parts(output), None)
        call.output = weakref.ref(out) if out is not None else None
        if call.random is not None:  # once it has drawn, its generator is kept at every step
            drew = not _same_bytes(call.random, torch.get_rng_state()) if call.index not in self.draws else True
            self.draws[call.index] = self.draws.get(call.index, False) or drew

    def loss_scaled(self, loss: Any) -> None:
        """A GradScaler multiplies this loss; what overflows by that is its own business."""
        self.scaled = isinstance(loss, Tensor) and bad_value(loss)

    def backward_starts(self, root: Tensor, loss: Tensor | None) -> None:
        """The loss is there, and its graph still has what autograd saved."""
        if not self.enabled or not self.calls:
            return
        self.loss_bad = bad_value(loss) if self.scaled is None else self.scaled
        ended = all(c.end is not None for c in self.calls)
        if ended or self.loss_bad:
            spans = [(c.start, c.end or c.start) for c in self.calls]
            self.graph = lossgraph.walk(root.grad_fn, spans, whole=self.loss_bad)

    def backward_ended(self) -> None:
        """All gradients are there and no optimizer has used them yet."""
        if not self.enabled or not self.calls:
            return
        if self.loss_bad:
            self._run("loss")
        elif self.scaled is None and self._gradient_bad():  # what a GradScaler meets it skips
            self._run("gradient")
        elif self.calls:
            self.graph = None
            held = [c for c in self.calls if c.end is None or (c.output is not None and c.output() is not None)]
            self.calls = deque(held, maxlen=CALLS)

    def optimizer_stepped(self, members: list[int]) -> None:
        """Weights have moved: a call of their model can no longer be repeated."""
        models = {self.session.names.parameter_model[i] for i in members}
        for call in self.calls:
            call.moved = call.moved or self.session.forward.places[call.index].model in models

    def step_ends(self, loss: float | Tensor | None) -> Culprit | None:
        """The culprit of this step; a loss that is not finite and was never sent backward is looked at now."""
        if self.enabled and self.calls and not self.session.clock.backwards:
            told = bad_value(loss) if isinstance(loss, Tensor) else loss is not None and not math.isfinite(loss)
            if told:
                self._run("loss")
        found = self.found
        if found is None:
            return None
        names = self.session.names
        names.fix(self.session)
        module = names.module(found.place) if found.place is not None else None
        return Culprit(module, found.operator, found.file, found.line, found.phase, found.detail)

    def say_unknown(self, step: int, place: tuple[str, str | None] | None) -> None:
        """A step was not finite and no replay was started: say why, once."""
        if not self.enabled or place is None or place[0] not in ("forward", "loss", "gradient"):
            return
        self.enabled = False
        why = "no call of the model was seen"
        if self.device != HOST:
            why = f"the model is on {self.device} and a look at each step would wait for it"
        elif self.scaled is not None:
            why = "non-finite gradients were left to the GradScaler"
        self.session.notes.append(f"replay of step {step}: not made, {why}; the operator is unknown")

    def _gradient_bad(self) -> bool:
        """Whether a gradient is not finite: from the norms where they were taken, else from one of the first layers."""
        session = self.session
        if session.sampling:
            return any(bad_value(w.grad_norm) for w in session.parameters.items)
        if session.quick is not None:
            return bad_value(session.quick)
        grads = [
            g
            for w in session.parameters.items[:FIRST]
            if (p := w.ref()) is not None and (g := p.grad) is not None and g.layout is torch.strided and g.numel()
        ]
        if not grads:
            return False
        with torch.no_grad():
            return bad_value(min(grads, key=Tensor.numel).sum(dtype=torch.float32))

    def _buffer_versions(self, index: int) -> tuple[tuple[int, int], ...]:
        """Identity and version of the users' own buffers; those of torch's modules are running statistics."""
        if index not in self.buffers:
            module = self.session.forward.places[index].ref()
            self.buffers[index] = [
                (weakref.ref(m), name)
                for m in (module.modules() if module is not None else ())
                if not type(m).__module__.startswith("torch.")
                for name in m._buffers
            ]
        owned = [(m, name) for ref, name in self.buffers[index] if (m := ref()) is not None]
        return tuple((id(b), b._version) for m, name in owned if (b := m._buffers.get(name)) is not None)

    # --- the replay ------------------------------------------------------------------------------

    def _run(self, trigger: str) -> None:
        """Replay the open step, say what came of it, and never replay again."""
        session = self.session
        self.enabled = False
        silenced = [s for s in {session, *signals.sessions()} if s.live]
        for s in silenced:
            s.live = False
        try:
            with warnings.catch_warnings(), torch.enable_grad():
                warnings.simplefilter("ignore")
                self.found, note = self._search(trigger, time.perf_counter() + session.settings.replay_seconds)
        except Declined as reason:
            note = f"declined, {reason}"
        except Exception as error:
            note = f"ended by {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
        finally:
            for s in silenced:
                s.live = True
            self.calls.clear()
            self.graph = None
        if note:
            session.notes.append(f"replay of step {session.clock.step}: {note}")

    def _search(self, trigger: str, deadline: float) -> tuple[Found | None, str]:
        """(what was found, what there is to say where nothing was)."""
        graph = self.graph or LossGraph()
        if trigger == "gradient" and (found := lossgraph.of_derivative(graph)) is not None:
            return self._in_loss(found), ""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise Declined("a process group is open: the other ranks would wait")
        if any(not operators.finite(p.detach()) for w in self.session.parameters.items if (p := w.ref()) is not None):
            return None, "the weights were not finite before this step"
        spans: list[tuple[int, int]] = []
        calls, cut = list(self.calls), None
        for k, call in enumerate(calls):
            module = self._module(call)
            own: set[int] = set()
            with rerun.untouched(module, own) as stand_ins:
                again = self._forward(call, module, own, deadline)
                spans.append((call.start, call.end or call.start + again.nodes))
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
        if _versions(call.args, call.kwargs) != call.versions:
            raise Declined("the batch was changed in place since")
        if self._buffer_versions(call.index) != call.buffers:
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
        return module

    def _forward(self, call: Call, module: nn.Module, own: set[int], deadline: float) -> Rerun:
        """The call once more, eagerly, in its autocast and from its random state."""
        places = {id(m): i for i, p in enumerate(self.session.forward.places) if (m := p.ref()) is not None}
        watcher = Watcher(places, call.caller, _invoke.__code__, deadline)
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
        watcher.phase, watcher.found, watcher.origins = "backward", [], {}
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


def _versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    return tuple(_tensor_versions((*args, *kwargs.values())))


def _tensor_versions(values: tuple[Any, ...]) -> Iterator[int]:
    for t in rerun.parts(values):
        yield -1 if t.is_inference() else t._version


def _known(hook: Any) -> bool:
    """Ours, or torch's own (weight norm, spectral norm, pruning compute a weight there)."""
    return isinstance(hook, (hooks._Hook, hooks.Silent)) or str(getattr(hook, "__module__", "")).startswith("torch.")
