"""The replay: where a step first turns non-finite on a CPU, its batch goes once more through the model.

During a step only references are kept: what entered the model, and how many autograd nodes there were. When the loss or
a gradient is not finite, `search` runs the calls of the step again (`rerun`), which names the first operator with
finite inputs and a non-finite output, or the first derivative; operators of the loss are read from its graph
(`lossgraph`).
Once in a session, and never where it could change the training; `docs/design/replay.md` has the rules.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.record import REPLAY_OFF, Culprit
from neuraldbg.watch import lossgraph, operators, rerun, signals
from neuraldbg.watch.host import HOST, bad_value, is_measurable, same_bytes
from neuraldbg.watch.lossgraph import LossGraph
from neuraldbg.watch.operators import Found
from neuraldbg.watch.search import Call, Declined, Search, versions

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

CALLS = 8  # of the open step that are kept: a GAN makes four, a loop over time may make hundreds
FIRST = 4  # parameters one of whose gradients stands for all on light steps: a NaN runs down to the first layers


class Replay:
    """The state of the open step, and the one replay of a session."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self.enabled = session.settings.replay and hasattr(torch._C._autograd, "_get_sequence_nr")
        self.off = not session.settings.replay  # until that is said
        self.device = HOST
        self.small: weakref.ref[Tensor] | None = None  # the parameter whose gradient stands for all on light steps
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
        self.device = place.row.device.type
        if self.device != HOST:
            return
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        call = Call(
            index=index,
            args=args,
            kwargs=kwargs,
            start=rerun.sequence(),
            versions=versions(args, kwargs),
            buffers=self.buffer_versions(index),
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
            drew = not same_bytes(call.random, torch.get_rng_state()) if call.index not in self.draws else True
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
            self.graph = lossgraph.walk(root.grad_fn, spans, whole=self.loss_bad, since=self.session.since)

    def backward_ended(self) -> None:
        """All gradients are there and no optimizer has used them yet."""
        if not self.enabled or not self.calls:
            return
        if self.loss_bad:
            self._run("loss")
        elif self.scaled is None and self._gradient_bad():  # what a GradScaler meets it skips
            self._run("gradient")
        else:
            self.graph = None
            held = [c for c in self.calls if c.end is None or (c.output is not None and c.output() is not None)]
            self.calls = deque(held, maxlen=CALLS)

    def optimizer_stepped(self, members: list[int]) -> None:
        """Weights have moved: a call of their model can no longer be repeated."""
        open_calls = [c for c in self.calls if not c.moved]
        if open_calls:
            session = self.session
            models = set(map(session.names.parameter_model.__getitem__, members))
            for call in open_calls:
                call.moved = session.forward.places[call.index].model in models

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
        if not (self.enabled or self.off) or place is None or place[0] not in ("forward", "loss", "gradient"):
            return
        why = "no call of the model was seen"
        if self.off:
            why = REPLAY_OFF
        elif self.device != HOST:
            why = f"the model is on {self.device} and a look at each step would wait for it"
        elif self.scaled is not None:
            why = "non-finite gradients were left to the GradScaler"
        self.enabled = self.off = False
        self.session.notes.append(f"replay of step {step}: not made, {why}; the operator is unknown")

    def _gradient_bad(self) -> bool:
        """Whether a gradient is not finite: from the norms where they were taken, else from one of the first layers."""
        session = self.session
        if session.sampling:
            return any(bad_value(w.grad_norm) for w in session.parameters.items)
        if session.quick is not None:
            return bad_value(session.quick)
        grad = self._small_gradient()
        if grad is None:
            return False
        return bad_value(grad.sum() if grad.dtype in (torch.float32, torch.float64) else grad.sum(dtype=torch.float32))

    def _small_gradient(self) -> Tensor | None:
        """The smallest gradient of the first layers; the same parameter's as long as it has one."""
        p = self.small() if self.small is not None else None
        if p is None or p.grad is None:
            first = [p for w in self.session.parameters.items[:FIRST] if (p := w.ref()) is not None]
            p = min((p for p in first if p.grad is not None and p.numel()), key=Tensor.numel, default=None)
            self.small = weakref.ref(p) if p is not None else None
        grad = p.grad if p is not None else None
        return grad.detach() if grad is not None and is_measurable(grad) else None

    def buffer_versions(self, index: int) -> tuple[tuple[int, int], ...]:
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
                deadline = time.perf_counter() + session.settings.replay_seconds
                self.found, note = Search(self, deadline).find(trigger)
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
