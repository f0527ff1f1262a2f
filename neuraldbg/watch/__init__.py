"""Watching a training: `NeuralDbg`, the public session. The only folder that imports torch."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from neuraldbg import reasoning, sinks
from neuraldbg.diagnosis import Coupling, Diagnosis, Hypotheses, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning import queries
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings, make
from neuraldbg.switch import strict
from neuraldbg.trace import EventLog, Trace
from neuraldbg.watch import signals, structure
from neuraldbg.watch.raised import raised_at
from neuraldbg.watch.refresh import leave_out
from neuraldbg.watch.session import Session, log
from neuraldbg.watch.stopping import OnFailure, Stopper

__all__ = ["NeuralDbg"]


class NeuralDbg:
    """Watches the training of one or several models and says why it failed.

    >>> with NeuralDbg(model) as dbg:  # doctest: +SKIP
    ...     train(model)
    >>> print(dbg.diagnose())  # doctest: +SKIP

    models: modules, or one mapping of names to modules. settings: a `Settings`; single fields may be given by name
    (``NeuralDbg(model, dense_steps=100)``). sinks: where events and the diagnosis go, see `neuraldbg.sinks`.
    on_failure: where the training cannot recover (weights that are not finite, say), end the session, hand the
    diagnosis over, and then "raise" a `TrainingFailed`, "stop" (set `should_stop`), or call a function with it.
    Raises TypeError for what is no module and ValueError for a model without parameters.
    """

    active: ClassVar[weakref.WeakSet[NeuralDbg]] = weakref.WeakSet()

    def __init__(
        self,
        *models: nn.Module | Mapping[str, nn.Module],
        settings: Settings | None = None,
        sinks: Sequence[sinks.Sink] | None = None,
        on_failure: OnFailure | None = None,
        **fields: Any,
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(
                f"settings is a neuraldbg.Settings, got {_shown(settings)}; pass Settings(...) or single fields by name"
            )
        self._named = _named(models)  # let go of when entered: a session keeps no model alive
        self._first: Callable[[], nn.Module | None] = lambda: self._named[0][1] if self._named else None
        changes = {**(settings.model_dump(exclude_unset=True) if settings is not None else {}), **fields}
        self.settings = make(**changes)
        self._sinks = sinks
        self._stopper = Stopper(on_failure)
        self._session = Session(self.settings, self._take, self._hold)
        self._trace = Trace(self.settings, reasoning.detectors())
        self._fanout: Any = None
        self._final: Diagnosis | None = None
        self._reasoned = 0
        self._entered = False
        self._told_facts = RunFacts()
        self.journal: Path | None = None

    # --- the context and its two halves ---------------------------------------------------------

    def __enter__(self) -> NeuralDbg:
        if self._entered:
            raise RuntimeError("this session has been used; make a new NeuralDbg(model) for another training")
        self._entered = True
        try:
            self._install_hooks()
        finally:
            if self._named:
                self._first = weakref.ref(structure.unwrapped(self._named[0][1]))
            self._named = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._session.exception = (type(error).__name__, *raised_at(self._session, error, trace))
        self.finish()

    def _install_hooks(self) -> None:
        """The first half of the context: hang the hooks, open the sinks."""
        if not self.settings.enabled:
            self._session.notes.append("watching is off: enabled=False or NEURALDBG_ENABLED=0")
            return
        for name, model in self._named:
            self._adopt(name, model)
        signals.connect(self._session)
        self._session.on_end = self.finish
        NeuralDbg.active.add(self)
        self._open_sinks()

    def _remove_hooks(self) -> None:
        """The second half: take them off."""
        self._session.remove()
        signals.disconnect(self._session)
        NeuralDbg.active.discard(self)

    def _adopt(self, name: str, model: nn.Module) -> None:
        for other in list(NeuralDbg.active):
            if other is not self and other.watches(model):
                other.detach()  # a second session on one model (a notebook cell run again): the newest wins
        try:
            self._session.install(name, model)
        except Exception as error:  # ours: the model trains, though we cannot say what it does
            if strict():
                raise
            leave_out(self._session, name, model, error)

    def _open_sinks(self) -> None:
        given = list(self._sinks) if self._sinks is not None else []
        made = sinks.from_factories()
        folder = self.settings.journal_dir
        if folder is not None:
            self.journal = Path(folder) / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{id(self):x}.jsonl"
        if given or made or self.journal is not None:
            self._fanout = sinks.FanOut([*given, *made], journal_path=self.journal, journal_mb=self.settings.journal_mb)
            self._fanout.open(self._session.facts)
            self._trace.listener = self._fanout.event

    def add(self, model: nn.Module, name: str | None = None) -> None:
        """Watch one more model; names are fixed when the first step ends."""
        pair = _pair(model, name or _free_name(model, [n for n, _ in self._session.models]))
        if self.settings.enabled and not self.watches(model):
            self._adopt(*pair)

    def drop(self, model: nn.Module) -> None:
        """Stop watching one of several models (in the first round of steps)."""
        for number, (_, ref) in enumerate(self._session.models):
            if ref() is structure.unwrapped(model):
                self._session.drop(number)

    def _hold_models(self) -> None:
        """Which models take part is not known yet: the first records wait, for their names depend on it."""
        self._session.growing = True

    def _settle_models(self) -> None:
        """It is known now."""
        self._session.growing = False

    def watches(self, model: nn.Module) -> bool:
        target = structure.unwrapped(model)
        return any(ref() is target for _, ref in self._session.models)

    def detach(self) -> None:
        """Take all hooks off, whatever happened; the diagnosis stays. Safe to call twice."""
        self.finish()

    def _forget(self) -> None:
        """Drop the records that wait: what was begun here is a part of another session's training."""
        self._session.forget()

    def finish(self) -> None:
        """End the session: hooks off, last step closed, diagnosis to the sinks."""
        if self._final is not None or not self._entered:
            return
        try:
            self._session.settle(final=True)
        finally:
            self._session.live = False
            self._remove_hooks()
        self._final, self._reasoned = self._reason(finished=True), len(self._trace.events)
        if self._fanout is not None:
            self._fanout.close(self._final)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the model carries no hooks (for tracing, scripting, exporting)."""
        session = self._session
        was, session.live = session.live, False
        models = [(n, m) for n, ref in session.models if (m := ref()) is not None]
        session.remove()
        try:
            yield
        finally:
            if was and self._final is None:
                session.rehang(models)
                session.live = True

    # --- what happens during the run --------------------------------------------------------------

    def _hold(self, place: int, record: StepRecord, facts: RunFacts) -> None:
        """One of the first records, which wait: to the journals alone, in case the process is killed meanwhile."""
        if self._fanout is not None:
            self._fanout.held(place, record, facts)

    def _take(self, record: StepRecord, facts: RunFacts) -> None:
        """One record from the watcher: to the detectors, and its numbers to the sinks."""
        new = self._trace.feed(record, facts)
        if self._stopper.look(record, new):
            self._stopper.ask(self)
        if self._fanout is not None:
            if facts is not self._told_facts:
                self._told_facts = facts
                self._fanout.facts(facts)
            values = {k: points[-1][1] for k, points in self._trace.points.items() if points[-1][0] == record.step}
            self._fanout.points(record.step, values)

    def record_loss(self, value: float | Tensor) -> None:
        """The loss of this step; NaN and infinity are welcome. Each call ends a step (unless `step` is set by hand).

        A tensor with one element is taken as it is, without waiting for its device.
        Raises TypeError for anything that is no number.
        """
        loss = _loss(value)
        session = self._session
        if session.live and os.getpid() == session.pid:
            session.record_loss(loss)

    def record_validation_loss(self, value: float | Tensor) -> None:
        """The loss on data that the training does not see, after this step: with it, overfitting can be told.

        Raises TypeError for anything that is no number.
        """
        loss = _loss(value, "record_validation_loss")
        if self._session.live and os.getpid() == self._session.pid:
            self._session.validation = loss

    @property
    def step(self) -> int:
        """The current step, 0-based. Setting it switches our own counting off."""
        return self._session.clock.step

    @step.setter
    def step(self, value: int) -> None:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"step is a whole number, got {_shown(value)}")
        if int(value) < 0:
            raise ValueError(f"steps count from 0, got {_shown(value)}")
        if self._session.live:
            self._session.set_step(int(value))

    @property
    def should_stop(self) -> bool:
        """Whether `on_failure` was given and the training failed for good: a loop of yours may end here."""
        return self._stopper.should_stop

    @property
    def events(self) -> EventLog:
        """The events so far; append your own and they are reasoned over like measured ones."""
        return self._trace.events

    @property
    def model(self) -> nn.Module | None:
        """The (first) watched model; None once it is gone, for the session does not keep it alive."""
        return self._session.models[0][1]() if self._session.models else self._first()

    @property
    def while_active(self) -> Any:
        """Asked on the training thread at each forward and optimizer step; False ends the session."""
        return self._session.while_active

    @while_active.setter
    def while_active(self, asked: Any) -> None:
        self._session.while_active = asked

    # --- answers ----------------------------------------------------------------------------------

    def _facts(self) -> RunFacts:
        """The facts with what came after watching had ended: the user's exception, an error of ours."""
        session, known = self._session, self._session.facts
        exception, place, layer = session.exception or (None, "", None)
        notes = tuple(dict.fromkeys((*known.coverage.notes, *session.notes)))
        return dataclasses.replace(
            known,
            started=self._trace.facts.started,
            exception=exception,
            exception_place=place,
            exception_layer=layer,
            coverage=dataclasses.replace(known.coverage, notes=notes),
        )

    def _reason(self, finished: bool) -> Diagnosis:
        try:
            return reasoning.diagnose(self._trace.run(finished, self._facts()), self.settings)
        except Exception as error:  # ours: the user's loop, and the user's own exception, go on without a verdict
            if strict():
                raise
            log.error("NeuralDBG could not reason over this run: %r", error, exc_info=error)
            self._session.notes.append(f"no cause was looked for, by an error of NeuralDBG: {error!r}")
            verdict = Verdict.WARNING if finished else Verdict.RUNNING
            return Diagnosis(
                verdict, 0.5, events=tuple(self._trace.events), facts=self._facts(), steps=self._trace.steps
            )

    def diagnose(self) -> Diagnosis:
        """Verdict, ranked hypotheses, couplings, graph and coverage: of the run so far, or of the finished run."""
        if self._final is None:
            self._session.settle()
            return self._reason(finished=not self._entered)
        if len(self._trace.events) != self._reasoned:  # appended by hand since
            self._final, self._reasoned = self._reason(finished=True), len(self._trace.events)
        return self._final

    def explain_failure(self, failure_type: str | None = None) -> Hypotheses:
        """On a failed run all hypotheses, best first; empty on a healthy or warning run.

        failure_type: only those of this type or whose chain passes it. Raises ValueError for an unknown type.
        """
        return queries.explain(self.diagnose(), failure_type)

    def get_causal_hypotheses(self) -> Hypotheses:
        """The same, and the notes of a healthy or warning run too."""
        return queries.get_hypotheses(self.diagnose())

    def get_root_causes(self) -> list[SemanticEvent]:
        """The earliest event of each causal chain."""
        return queries.root_causes(self.diagnose())

    def trace_causal_chain(self, failure_type: str) -> list[str]:
        """The chain to that failure, cause first; an event type is accepted too."""
        return queries.chain(self.diagnose(), failure_type)

    def detect_coupled_failures(self) -> list[Coupling]:
        """Pairs of events in causal reach of each other within `coupling_window` steps."""
        return list(self.diagnose().couplings)

    def export_mermaid_causal_graph(self) -> str:
        """The causal graph as Mermaid `graph TD`, at most 40 nodes."""
        from neuraldbg.report.mermaid import mermaid

        return mermaid(self.diagnose().graph)

    def collapse_events(self) -> list[SemanticEvent]:
        """Events merged per layer and type, with `step_range` and `collapsed_count`."""
        return queries.collapse(self.diagnose().events)

    _collapse_events = collapse_events

    def save(self, path: str | Path) -> Path:
        """Write the diagnosis as JSON (or as HTML or Markdown, by the path's ending)."""
        from neuraldbg import report

        return report.save(self.diagnose(), Path(path))

    def __repr__(self) -> str:
        models = ", ".join(name or "model" for name, _ in self._session.models) or "not entered"
        return f"<NeuralDbg watching {models}, step {self.step}, {len(self.events)} events>"


def _named(models: Sequence[Any]) -> list[tuple[str, nn.Module]]:
    """(name, model) of what was given to the constructor, checked."""
    if not models or (len(models) == 1 and isinstance(models[0], Mapping) and not models[0]):
        raise TypeError(
            "NeuralDbg watches at least one model, got none; pass NeuralDbg(model) or a mapping of names to models"
        )
    if len(models) == 1 and isinstance(models[0], Mapping):
        return [_pair(model, str(name)) for name, model in models[0].items()]
    pairs: list[tuple[str, nn.Module]] = []
    for model in models:
        if any(m is model for _, m in pairs):
            raise ValueError(f"the same {type(model).__name__} was given twice; give each model once")
        pairs.append(_pair(model, _free_name(model, [n for n, _ in pairs])))
    return pairs


def _pair(model: Any, name: str) -> tuple[str, nn.Module]:
    if not isinstance(model, nn.Module):
        hint = "; pass the model itself, NeuralDbg(model)" if not isinstance(model, type) else "; pass an instance"
        raise TypeError(f"NeuralDbg watches torch.nn.Module objects, got {_shown(model)}{hint}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"NeuralDbg cannot watch a scripted or traced model ({model.original_name}); enter the eager module"
            " that it was made from"
        )
    if next(model.parameters(), None) is None:
        raise ValueError(
            f"{type(model).__name__} has no parameters, so there is nothing to train; pass the model that is trained"
        )
    return name, model


def _free_name(model: Any, taken: Sequence[str]) -> str:
    base = type(structure.unwrapped(model) if isinstance(model, nn.Module) else model).__name__.lower()
    return base if base not in taken else next(f"{base}{k}" for k in range(2, 10**6) if f"{base}{k}" not in taken)


def _loss(value: Any, method: str = "record_loss") -> float | Tensor:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise TypeError(
                f"{method} takes one number a step, got a tensor of shape {tuple(value.shape)}; pass loss.mean()"
            )
        if value.device.type == "meta" or value.is_complex() or value.layout is not torch.strided:
            kind = "meta" if value.device.type == "meta" else str(value.dtype if value.is_complex() else value.layout)
            raise TypeError(f"{method} takes a number, got a {kind.removeprefix('torch.')} tensor; pass loss.item()")
        if value.device.type != "cpu":
            return value.detach().reshape(())
        try:
            return float(value.detach())
        except Exception as error:  # a wrapper without values
            raise TypeError(f"{method} takes a number, got a {type(value).__name__}; pass loss.item()") from error
    if isinstance(value, (str, bytes)) or value is None:
        raise TypeError(f"{method} takes a number, got {_shown(value)}; pass loss.item()")
    try:
        return float(value)
    except Exception as error:  # also one that the value's own conversion raises
        cause = None if isinstance(error, (TypeError, ValueError, OverflowError)) else error
        raise TypeError(f"{method} takes a number, got {_shown(value)}; pass loss.item()") from cause


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:  # its own, or a number too long for the interpreter to print
        return type(value).__name__
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
