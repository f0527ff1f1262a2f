"""Sessions nobody asked for by name: after a spoke's `autolog()`, the models that optimizers train are watched.

A new optimizer tells which modules it trains (`owners`), and one session takes them in before their first forward
pass, so that step 0 is seen and a compiled model is caught before it is traced. At an optimizer's first step those of
its models that took no part leave; the models of others have until one steps again, for models may train in turn.
There is never a hook on all modules (it would make `torch.compile` warn); the global step hooks of optimizers stay
while autolog is on.

A session ends when the run that it is tracked in is no longer active (a spoke gives a `Probe` that tells), when another
model trains elsewhere, or at interpreter exit. State is kept per thread, as trackers keep their active run.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from neuraldbg.switch import strict
from neuraldbg.watch.owners import optimizers, owners

if TYPE_CHECKING:
    from types import TracebackType

    from neuraldbg.watch import NeuralDbg

log = logging.getLogger("neuraldbg")

Probe = Callable[[], tuple[str, ...]]
"""Ids of this thread's active runs of one tracker, innermost first; cheap, for it is asked at every step."""

RETIRED_AFTER = 3  # steps of another model alone in the same run after which the first one's training is over

_probes: list[Probe] = []
_lock = threading.RLock()


class _Mark:
    """Set once its model ran or got a gradient. Inert: silent in copies, and while a graph is traced."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.seen = True

    def __deepcopy__(self, memo: dict[int, Any]) -> _Mark:
        return _Mark()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _Mark, ()


class _Watched:
    """A model of a session, whether it takes part, and which optimizers train it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = weakref.ref(model)
        self.mark = _Mark()
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._handles = [model.register_forward_pre_hook(self.mark)]
        self._handles += [
            p.register_post_accumulate_grad_hook(self.mark) for p in model.parameters() if _takes_gradient(p)
        ]

    def has_gradients(self) -> bool:
        model = self.model()
        return model is not None and any(p.grad is not None for p in model.parameters())

    def look_back(self) -> None:
        """Taken in before a step whose passes went by unmarked: gradients tell whether it took part in them."""
        self.mark.seen = self.mark.seen or self.has_gradients()

    def may_come(self, stepped: weakref.WeakSet[Optimizer]) -> bool:
        """Whether its turn is still to come; gradients of before are those of an earlier training, which is over."""
        return not any(o in stepped for o in self.optimizers) and not self.has_gradients()

    def release(self, forward: bool = True) -> None:
        """Take the marks off; without `forward` the model's own stays, whose loss would recompile a compiled model."""
        kept = 0 if forward else 1
        for handle in self._handles[kept:]:
            handle.remove()
        del self._handles[kept:]


def _takes_gradient(parameter: Tensor) -> bool:
    return parameter.requires_grad and parameter.is_leaf


class _Entry:
    """One automatic session."""

    def __init__(self, session: NeuralDbg) -> None:
        self.session = session
        self.watched: list[_Watched] = []
        self.runs: dict[Probe, str] = {}
        self.stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.decided = self.settled = False  # after its first step no model joins, after its first round none leaves
        self.strangers = 0
        self.left_alone: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # of models that joined too late
        self.finished = False

    def trains(self, optimizer: Optimizer) -> bool:
        return any(optimizer in w.optimizers for w in self.watched)

    def find(self, model: nn.Module) -> _Watched | None:
        return next((w for w in self.watched if w.model() is model), None)

    def take(self, model: nn.Module, optimizer: Optimizer) -> None:
        watched = self.find(model)
        if watched is None:
            watched = _Watched(model)
            self.watched.append(watched)
            if not self.session.watches(model):
                self.session.add(model)
        watched.optimizers.add(optimizer)

    def bind(self) -> None:
        """Remember the innermost active run of each tracker, the first time there is one."""
        for probe in _probes:
            if probe not in self.runs and (active := probe()):
                self.runs[probe] = active[0]

    def is_taken(self) -> bool:
        """Whether a session of the user's own took over; the newest one on a model wins."""
        from neuraldbg.watch import NeuralDbg

        return self.session not in NeuralDbg.active

    def is_over(self) -> bool:
        return self.finished or self.is_taken() or any(run not in probe() for probe, run in self.runs.items())

    def is_elsewhere(self) -> bool:
        """Whether what runs now runs in another innermost run, or in none as this session does."""
        now = {probe: active[0] for probe in _probes if (active := probe())}
        return now != self.runs or not now

    def is_stale(self) -> bool:
        """Whether it only waits for models of an earlier training, which nothing has touched since."""
        return not self.decided and not any(
            w.mark.seen or o not in _stepped for w in self.watched for o in w.optimizers
        )

    def decide(self, optimizer: Optimizer) -> None:
        """After each optimizer step of the first round: models that took no part in their turn leave."""
        again, self.decided = optimizer in self.stepped, True
        self.stepped.add(optimizer)
        for watched in list(self.watched):
            model = watched.model()
            stays = model is not None and watched.mark.seen
            if not stays and not again and watched.may_come(self.stepped):
                continue
            watched.release(forward=not stays)  # the marks have told all that they can, and cost a call a parameter
            if not stays:
                self.watched.remove(watched)
                if model is not None:
                    self.session.drop(model)
        self.settled = all(watched.mark.seen for watched in self.watched)
        if self.settled:
            self.session._settle_models()

    def finish(
        self,
        error: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] = (None, None, None),
    ) -> None:
        self.finished = True
        for watched in self.watched:
            watched.release()
        self.session.while_active = None
        if error[0] is None:
            self.session.finish()
        else:
            self.session.__exit__(*error)


class _Local(threading.local):
    entry: _Entry | None = None
    pending: _Entry | None = None
    busy = False


_local = _Local()
_entries: set[_Entry] = set()  # of all threads, also of those that have ended
_known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
_stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
_theirs: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_listeners: list[Callable[[], None]] = []
_undo: list[Callable[[], None]] = []
_pid = os.getpid()


def enable(probe: Probe, on_step: Callable[[], None]) -> None:
    """Watch what trains from now on; optimizers that exist already count.

    probe: tells a tracker's active runs. on_step: called after each optimizer step, on the training thread.
    """
    with _lock:
        if probe not in _probes:
            _probes.append(probe)
        if on_step not in _listeners:
            _listeners.append(on_step)
        if not _undo:
            _undo.extend((_wrap_optimizers(), *_hook_steps()))
            _known.update(optimizers())
            atexit.unregister(_at_exit)
            atexit.register(_at_exit)
    _made(*_known)


def disable(probe: Probe, on_step: Callable[[], None]) -> None:
    """Undo `enable`; with its last probe all automatic sessions end and nothing of ours is left in torch."""
    with _lock:
        if probe in _probes:
            _probes.remove(probe)
        if on_step in _listeners:
            _listeners.remove(on_step)
        if _probes:
            return
        for undo in _undo:
            undo()
        _undo.clear()
        _known.clear()
        _theirs.clear()
    finish_all()


def run_started() -> None:
    """A spoke says that a run became active: earlier sessions end, and models that live on may train in it."""
    for entry in (_local.entry, _local.pending):
        if entry is not None and entry.is_over():
            _finish(entry)
    if _local.entry is None or not _local.entry.decided:
        _made(*_known)


def run_ending(
    run: str,
    error: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] = (None, None, None),
) -> None:
    """A spoke says that this run ends now, with this exception."""
    for entry in list(_entries):
        if run in entry.runs.values():
            _finish(entry, error)


def finish_all() -> None:
    for entry in list(_entries):
        _finish(entry)


def is_starting() -> bool:
    """Whether the session that starts now on this thread is an automatic one."""
    return _local.busy


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Nothing of ours reaches the training, and what we do ourselves is not watched."""

    @functools.wraps(function)
    def guarded(*arguments: Any) -> None:
        if _local.busy or not _probes or os.getpid() != _pid:
            return
        _local.busy = True
        try:
            function(*arguments)
        except Exception:
            if strict():
                raise
            log.warning("NeuralDBG's automatic watching had an error and goes on", exc_info=True)
        finally:
            _local.busy = False

    return guarded


def _in_session(optimizer: Optimizer) -> bool:
    return any(e is not None and e.trains(optimizer) for e in (_local.entry, _local.pending))


@_guarded
def _made(*made: Optimizer) -> None:
    for optimizer in made:
        _take(optimizer)


def _take(optimizer: Optimizer) -> None:
    """Its models join the session, or a second one that waits for its first step."""
    _known.add(optimizer)
    if _local.entry is not None and _local.entry.is_over():
        _finish(_local.entry)
    if _in_session(optimizer):
        return
    models = [m for m in owners(optimizer) if not _is_users(m)]
    if not models:
        return
    if optimizer not in _stepped and _local.entry is not None and _local.entry.is_stale():
        _finish(_local.entry)
    entry = _local.entry
    if entry is None:
        _local.entry = _joined(None, models, optimizer)
    elif not entry.decided or all(entry.find(m) for m in models):
        _joined(entry, models, optimizer)
    else:
        _local.pending = _joined(_local.pending, models, optimizer)


def _joined(entry: _Entry | None, models: list[nn.Module], optimizer: Optimizer) -> _Entry:
    if entry is None:
        from neuraldbg.watch import NeuralDbg

        session = NeuralDbg(*models)
        session._hold_models()
        session.__enter__()
        entry = _Entry(session)
        session.while_active = functools.partial(_is_active, weakref.ref(entry))
        _entries.add(entry)
    for model in models:
        entry.take(model, optimizer)
    return entry


def _is_active(ref: weakref.ref[_Entry]) -> bool:
    """Asked by the session at each root forward and after each optimizer step."""
    entry = ref()
    if entry is None or os.getpid() != _pid:
        return True
    entry.bind()
    if not entry.is_over():
        return True
    again = [o for w in entry.watched for o in w.optimizers]
    _finish(entry)
    if any(probe() for probe in _probes):  # the same model goes on in another run
        _made(*again)
    return False


@_guarded
def _before_step(optimizer: Optimizer, *_: Any) -> None:
    alone = _local.entry is not None and optimizer in _local.entry.left_alone
    if not alone and not _in_session(optimizer):
        _take(optimizer)
        for entry in (_local.entry, _local.pending):
            for watched in entry.watched if entry is not None else ():
                if optimizer in watched.optimizers:
                    watched.look_back()


@_guarded
def _after_step(optimizer: Optimizer, *_: Any) -> None:
    _stepped.add(optimizer)
    for listener in _listeners:
        listener()
    entry, pending = _local.entry, _local.pending
    if entry is not None and entry.trains(optimizer):
        entry.strangers = 0
        if not entry.settled:
            entry.bind()
            entry.decide(optimizer)
        elif pending is not None and pending.decided:  # they take turns: parts of one training, one made late
            for watched in pending.watched:
                entry.left_alone.update(watched.optimizers)
            pending.session._forget()
            _finish(pending)
    elif pending is not None and pending.trains(optimizer):
        if not pending.settled:
            pending.bind()
            pending.decide(optimizer)
        if entry is not None:
            entry.strangers += 1
            if entry.is_elsewhere() or entry.is_over() or entry.strangers >= RETIRED_AFTER:
                _finish(entry)


def _finish(
    entry: _Entry,
    error: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] = (None, None, None),
) -> None:
    if not entry.finished and entry.is_taken():
        _theirs.update(m for w in entry.watched if (m := w.model()) is not None)
    _entries.discard(entry)
    if _local.entry is entry:
        _local.entry, _local.pending = _local.pending, None
    elif _local.pending is entry:
        _local.pending = None
    entry.finish(error)


def _is_users(model: nn.Module) -> bool:
    """Whether the user watches this model, or did: what they leave unwatched after that is their choice."""
    from neuraldbg.watch import NeuralDbg

    automatic = [entry.session for entry in _entries]
    if any(s.watches(model) for s in list(NeuralDbg.active) if s not in automatic):
        _theirs.add(model)
    return model in _theirs


def _wrap_optimizers() -> Callable[[], None]:
    original = Optimizer.__init__

    @functools.wraps(original)
    def init(self: Optimizer, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        _made(self)

    setattr(Optimizer, "__init__", init)  # noqa: B010  # mypy allows no assignment to a method

    def undo() -> None:
        if Optimizer.__init__ is init:
            setattr(Optimizer, "__init__", original)  # noqa: B010

    return undo


def _hook_steps() -> tuple[Callable[[], None], Callable[[], None]]:
    before = register_optimizer_step_pre_hook(_before_step)
    after = register_optimizer_step_post_hook(_after_step)
    return before.remove, after.remove


def _at_exit() -> None:
    if os.getpid() == _pid:
        finish_all()
