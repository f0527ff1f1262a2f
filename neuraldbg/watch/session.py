"""One session of watching: takes the signals, keeps step, makes a StepRecord of each step and hands it on.

Nothing here raises into the user's loop: every entry point is guarded; an error of ours is logged once and ends the
watching (NEURALDBG_STRICT=1 lets it through, for tests).
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings
from neuraldbg.switch import strict
from neuraldbg.watch import batch, closing, inputs, losses, signals, structure
from neuraldbg.watch.assemble import Names, build_facts, plain
from neuraldbg.watch.attach import Attachment
from neuraldbg.watch.clock import StepClock
from neuraldbg.watch.forward import ForwardWatch
from neuraldbg.watch.governor import Governor, Level
from neuraldbg.watch.guard import guarded
from neuraldbg.watch.host import aside
from neuraldbg.watch.kept import KeptGraphs
from neuraldbg.watch.parameters import ParameterWatch, rates_of
from neuraldbg.watch.refresh import owner_of, refresh, signature
from neuraldbg.watch.replay import Replay
from neuraldbg.watch.rerun import sequence
from neuraldbg.watch.waiting import MOST, FirstRecords, Hold

log = logging.getLogger("neuraldbg")

NEVER = 2**64  # above every node's number
PACKED = "saved tensors are packed by hooks (checkpointing, offloading): the loss's operator is not read where they are"


class Session:
    """The torch side of a NeuralDbg."""

    def __init__(self, settings: Settings, feed: Callable[[StepRecord, RunFacts], None], hold: Hold) -> None:
        self.settings = settings
        self.feed = feed
        self.pid = os.getpid()
        self.live = False
        self.models: list[tuple[str, weakref.ref[nn.Module]]] = []
        self.clock = StepClock()
        self.forward = ForwardWatch()
        self.parameters = ParameterWatch(int(settings.memory_mb * 1e6 / 2))
        self.names = Names()
        self.facts = RunFacts()
        self.notes: list[str] = []
        self.attachment = Attachment()
        self.compiled = False
        self.while_active: Callable[[], bool] | None = None
        self.on_end: Callable[[], None] | None = None
        self.started = time.perf_counter()
        self.spent = 0.0
        self.governor = Governor(settings, self.started)
        self.band: float | None = None
        self.depth = 0
        self.count = self.sampled_count = self.mapped = 0
        self.joined = (0, 0)  # of these counts, what was a part of step 0
        self.waiting = FirstRecords(hold)
        self.growing = False  # whether models may still join or leave
        self.light: list[tuple[StepRecord, float | Tensor | None, Tensor | None, Tensor | float]] = []
        self.weights_bad = False
        self.dropped: set[int] = set()
        self.validation: float | Tensor | None = None  # recorded since the last step that was handed on
        self.signatures: dict[int, int] = {}
        self.nested = 0
        self.late = False
        self.packed = False  # whether hooks on saved tensors were met
        self.since = 0  # the first node of autograd whose saved values may be read
        self.exception: tuple[str, str, str | None] | None = None  # what, where (see `raised`), in which layer
        self.replay = Replay(self)
        self.kept = KeptGraphs()
        self.around: bool | None = None  # whether a forward came through DistributedDataParallel; None: there is none
        self.ended = False
        self.thread: int | None = None  # of the last forward
        self._clear()

    def _clear(self) -> None:
        """Forget the open step."""
        self.begun = self.sampling = False
        self.level = Level.LOSS
        self.spent_before = 0.0
        self.rates: dict[int, tuple[float, ...]] = {}
        self.stack: list[int] = []
        self.in_backward = False
        self.loss: float | Tensor | None = None
        self.root_loss: Tensor | None = None
        self.pending_loss: tuple[Tensor | None, losses.FoundLoss | None] = (None, None)
        self.found: losses.FoundLoss | None = None
        self.batch: dict[str, inputs.Measured] = {}
        self.scale: Tensor | float | None = None
        self.skipped = self.divided = False
        self.samples: Sequence[int] | None = None
        self.before_scale: Tensor | None = None
        self.quick: Tensor | None = None
        self.trained = False
        self.replay.clear()

    # --- hooks on and off ----------------------------------------------------------------------

    def install(self, name: str, model: nn.Module) -> None:
        """Hang hooks on every module and trainable parameter of a model."""
        while isinstance(model, structure.PARALLEL):
            self.attachment.around(self, len(self.models), model)
            model = model.module
        wrapper, model = model, structure.unwrapped(model)
        self.compiled = self.compiled or wrapper is not model
        if wrapper is model and getattr(model, "_compiled_call_impl", None) is not None:
            self.compiled = True
        number = len(self.models)
        self.models.append((name, weakref.ref(model)))
        self.forward.add(number, model)
        modules = {id(m): p.name for p in self.forward.places if p.model == number and (m := p.ref()) is not None}
        before = len(self.parameters.items)
        self.parameters.add(model, modules)
        self.names.parameter_model += [number] * (len(self.parameters.items) - before)
        self.attachment.hang(self, number, wrapper)
        self.signatures[number] = signature(model)
        self.live = True

    def remove(self, number: int | None = None) -> None:
        """Take the hooks off again (of one model, or all)."""
        self.attachment.remove(self, number)

    def drop(self, number: int) -> None:
        """Stop watching one model: hooks off, its modules and parameters out of the records."""
        self.remove(number)
        several = len(self.models) - len(self.dropped) > 1
        for k, item in enumerate(self.parameters.items):
            if self.names.parameter_model[k] == number:
                item.ref, item.grad_norm, item.consumed_norm = weakref.ref(nn.Parameter()), None, None
        for place in self.forward.places:
            if place.model == number:
                place.ref = weakref.ref(nn.Module())
        self.dropped.add(number)
        self.names.modules = []  # a single model that is left has plain names
        left = [name for k, (name, _) in enumerate(self.models) if k not in self.dropped]
        if several and len(left) == 1:
            if self.waiting.records:
                self.waiting.change(functools.partial(plain, model=left[0]), build_facts(self))
            self.light = [(plain(r, left[0]), loss, norm, scale) for r, loss, norm, scale in self.light]

    def rehang(self, models: list[tuple[str, nn.Module]]) -> None:
        """Hang the hooks of known models again, after a pause."""
        for number, (_, model) in enumerate(models):
            if number not in self.dropped:
                self.attachment.hang(self, number, model)

    def fail(self, error: Exception) -> None:
        """An error of ours: say it once, stop watching, leave the training alone."""
        self.live = False
        self.replay.clear()
        self.notes.append(f"watching ended at step {self.clock.step} by an error of NeuralDBG: {error!r}")
        log.error("NeuralDBG stopped watching at step %d: %r", self.clock.step, error, exc_info=error)
        self.remove()
        signals.disconnect(self)

    # --- signals -------------------------------------------------------------------------------

    @guarded
    def before_forward(self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if aside():
            if self.stack and self.sampling and not torch.is_grad_enabled():
                self.forward.places[index].cut = True  # no_grad, or a re-entrant checkpoint, around a part
            return
        if not self.stack:
            self._enter(index, module, args, kwargs)
        if self.attachment.awake:
            self.stack.append(index)

    def before_compiled(self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A compiled wrapper is called: the start of a forward whose inside hooks are traced."""
        self.before_forward(index, module, args, kwargs)
        self.stack.clear()

    def _enter(self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._boundary()
        if not self.live:
            return
        self.attachment.entries.add(index)
        if not self.begun:
            self._begin()
        elif module.training and not self.trained and not self.clock.backwards and self.sampling:
            self.forward.begin()  # what was measured so far was an evaluation with gradients left on
            self.batch.clear()
        self.trained = self.trained or module.training
        self._look_for_packing()
        self.clock.forwards += 1
        self.thread = threading.get_ident()
        self.replay.called(index, module, args, kwargs)
        batch.enter(self, index, args, kwargs)

    @guarded
    def after_forward(self, index: int, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if aside() or index not in self.stack:
            return
        while self.stack.pop() != index:
            pass  # a forward inside was left by an exception that the user caught
        if self.sampling:
            self._look_for_packing()
            self._measure(index, module, args, output)
        if self.packed and not self.stack and not losses.packing():  # a loss made from here on is not packed
            self.since = sequence()
        if not self.stack:
            self.replay.returned(output)

    def _measure(self, index: int, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Statistics of one call; a module that they cannot be taken of is left out, and the others go on."""
        place = self.forward.places[index]
        if place.left_out:
            return
        try:
            with torch.no_grad():
                self.forward.measure(index, module, args, output)
        except Exception as error:
            if strict():
                raise
            place.left_out = True
            self.note(f"statistics of layer {place.name!r} were left out: {type(error).__name__}")

    def _look_for_packing(self) -> None:
        """To read a saved tensor would run the user's hooks: a checkpoint would compute, and train, once more."""
        if not self.packed and losses.packing():
            self.packed = True
            self.note(PACKED)
        if self.packed:
            self.since = NEVER

    def note(self, text: str) -> None:
        """One sentence for the coverage, once."""
        if text not in self.notes:
            self.notes.append(text)

    @guarded
    def after_compiled(self, output: Any) -> None:
        """A compiled wrapper has returned."""
        if torch.is_grad_enabled():
            self.replay.returned(output)

    @guarded
    def backward_starts(self, tensors: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            self.nested += 1  # a checkpoint computes again, inside a backward pass
            return
        self.stack.clear()
        self.in_backward = False
        self.nested, self.late = 0, False
        several = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        roots = [t for t in several if isinstance(t, Tensor)]
        root = next((t for t in roots if t.grad_fn is not None), None)
        if root is None:
            return
        traced = not self.clock.forwards  # the forward ran inside a graph, where no hook of ours can count
        taken = self.forward.take() if traced else []  # it belongs to the next step, if the open one is over
        if traced:
            self._boundary()
        if not self.begun:
            self._begin(traced=traced)
        elif self.parameters.lazy and self.sampling:
            refresh(self)  # lazy modules have their parameters by now
        if self.sampling:
            self.forward.give(taken)
        if losses.packing():
            self.since = NEVER
            self.note(PACKED)
        if self.sampling:
            self.kept.mark(root, self.count)
        loss, divided = losses.unscaled(root, self.since) if root.numel() == 1 else (None, False)
        self.divided = self.divided or divided
        loss = losses.before_overflow(loss, self.before_scale)
        found = None
        if self.sampling:
            self.parameters.begin_backward()
            found = losses.find_loss(root.grad_fn, self.since)
            if self.forward.mapping and self.forward.nodes:
                self.forward.walk(root.grad_fn)
        self.pending_loss = (loss, found)
        self.replay.backward_starts(root, loss)

    @guarded
    def after_gradient(self) -> None:
        if self.in_backward:
            return
        if self.nested:  # a callback would come when the recomputation ends, not when backward does
            self.late = True
            return
        self.in_backward = True
        torch.autograd.Variable._execution_engine.queue_callback(self.backward_ended)

    @guarded
    def backward_ended(self) -> None:
        self.in_backward = self.late = False
        if not self.begun:
            self._begin()
        self.clock.backwards += 1
        root, found = self.pending_loss
        self.pending_loss = (None, None)
        if root is not None:
            self.root_loss = losses.earlier(self.root_loss, root.detach())
        if found is not None:
            self.found = found
        if self.sampling:
            self.parameters.end_backward()
            self.parameters.direction()
        elif self.level is Level.NORM:
            with torch.no_grad():
                self.quick = self.parameters.quick_norm()

    @guarded
    def backward_returned(self) -> None:
        """The user's call of backward is over: nothing runs inside autograd any more."""
        if torch._C._current_graph_task_id() != -1:
            self.nested -= 1
            return
        if self.late:  # all gradients came in recomputations
            self.backward_ended()
        if self.clock.backwards:
            self.replay.backward_ended()

    @guarded
    def optimizer_stepped(self, optimizer: Any) -> None:
        k = owner_of(self, optimizer)
        if k is None:
            return
        if not self.begun:
            self._begin()
        self.stack.clear()
        if k not in self.clock.known:
            replaced = self.parameters.retire(k)
            self.clock.known -= replaced
            if not replaced and not self.clock.told and self._renumber():
                self.clock.joined()  # a round that was taken for whole was not
        self.clock.optimizer(k)
        self.rates[k] = rates_of(optimizer)
        self.replay.optimizer_stepped(self.parameters.owners[k].members)
        if self.sampling:
            self.parameters.consumed(k)
        self._check_active()

    @guarded
    def loss_scaled(self, loss: Any) -> None:
        """A GradScaler is about to multiply this loss."""
        self.replay.loss_scaled(loss)
        self.before_scale = loss.detach() if isinstance(loss, Tensor) and loss.numel() == 1 else None

    @guarded
    def scaler_steps(self, scaler: Any, optimizer: Any) -> int:
        k = self.parameters.owner_of(optimizer)
        scale = getattr(scaler, "_scale", None)
        if k is None or not getattr(scaler, "_enabled", True):
            return -1
        self.scale = scale.detach().clone() if isinstance(scale, Tensor) else None
        return self.clock.rounds[k]

    @guarded
    def scaler_stepped(self, optimizer: Any, rounds: int) -> None:
        k = self.parameters.owner_of(optimizer)
        if k is not None and rounds is not None and rounds >= 0 and self.clock.rounds[k] == rounds:
            self.skipped = True
            self.clock.optimizer(k)

    def _check_active(self) -> None:
        if self.while_active is not None and not self.while_active() and self.on_end is not None:
            self.on_end()

    # --- steps ---------------------------------------------------------------------------------

    @guarded
    def record_loss(self, value: float | Tensor) -> None:
        """The user's own loss of the open step."""
        if self.clock.loss_told:
            self.close()
        if not self.clock.told:
            self.clock.told = True
            self._renumber()
        self.stack.clear()
        if not self.begun:
            self._begin()
        self.loss = value
        self.clock.loss_told = True

    def _renumber(self) -> bool:
        """What was taken for the first steps all belonged to step 0: it is only now known how a step ends."""
        records = [] if self.clock.explicit else self.waiting.take()
        if not records:
            return False
        self.clock.step = 0
        self.joined = len(records), sum(record.sampled for record in records)
        for record in records:
            self.hand_on(replace(record, step=0))
        return True

    @guarded
    def set_step(self, value: int) -> None:
        if not self.clock.empty and value != self.clock.step:
            self.close()
        self.clock.explicit = True
        if not self.growing:
            self._hand_waiting_on()
        self.clock.step = value

    def _boundary(self) -> None:
        if self.clock.due(self.parameters.moved):
            self.close()
        self._check_active()

    def _begin(self, traced: bool = False) -> None:
        self.begun = True
        self.spent_before = self.spent
        self.level = self.governor.decide(self.count, time.perf_counter(), self.spent)
        self.sampling = self.level is Level.FULL
        if self.sampling:
            refresh(self)
            self.attachment.wake(self)
            self.forward.begin(clear=not traced)
            with torch.no_grad():
                self.parameters.snapshot(self.count)
        elif not traced and self.forward.ran:
            self.attachment.rest(self)

    @guarded
    def close(self) -> None:
        """End the open step: one transfer, one record."""
        if self.clock.empty:
            return
        with torch.no_grad():
            if self.sampling:
                closing.sampled(self)
            else:
                closing.light(self)
        self.governor.paid(self.level, self.spent - self.spent_before)
        if self.sampling:
            self.parameters.reset_step()
        self.count += 1
        self.clock.close()
        self._clear()

    def hand_on(self, record: StepRecord) -> None:
        """To the trace; the first few wait until it is known how a step ends, and which models take part."""
        if (self.growing or not (self.clock.told or self.clock.explicit)) and self.count < MOST:
            self.waiting.add(record, self.facts)
            return
        self._hand_waiting_on()
        self.feed(record, self.facts)

    def forget(self) -> None:
        """Drop what has not been handed on, and the open step."""
        self.waiting.take()
        self.light.clear()
        self.clock.open()
        self.count = self.sampled_count = 0

    def _hand_waiting_on(self) -> None:
        for record in self.waiting.take():
            self.feed(record, self.facts)

    @guarded
    def settle(self, final: bool = False) -> None:
        """Bring the trace up to date: close a finished step (at the end also an unfinished one)."""
        if not self.clock.empty and (final or self.clock.due(lambda: True)):
            self.close()
        with torch.no_grad():
            closing.flush(self)
            closing.last_validation(self)
        self.ended = final
        self._hand_waiting_on()
        self.facts = build_facts(self)
