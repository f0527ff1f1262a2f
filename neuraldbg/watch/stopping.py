"""`on_failure`: ending a training that cannot recover, at the user's request and after the diagnosis is stored.

Only what is terminal counts: weights that are not finite, losses that are not finite step after step, a scaler that
skips every step. A spike, a plateau or dead units may pass; no training is ended for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import SemanticEvent
from neuraldbg.failure import TrainingFailed
from neuraldbg.record import StepRecord

if TYPE_CHECKING:
    from neuraldbg.watch import NeuralDbg

OnFailure = Literal["raise", "stop"] | Callable[[Diagnosis], object]

BAD_LOSSES = 10  # in a row: who skips bad batches on purpose meets fewer
SKIPS = 50  # in a row: a scale of 2**16 that is halved as often is below the smallest half-precision number
MARK = "_neuraldbg_asked_for"


def checked(wanted: OnFailure | None) -> OnFailure | None:
    """The argument, if it is one. Raises ValueError for another word and TypeError for what cannot be called."""
    if wanted is None or wanted in ("raise", "stop") or callable(wanted):
        return wanted
    hint = 'give "raise", "stop" or a function of the diagnosis'
    if isinstance(wanted, str):
        raise ValueError(f"on_failure={wanted!r} is unknown; {hint}")
    raise TypeError(f"on_failure={wanted!r} cannot be called; {hint}")


def asked_for(error: BaseException) -> bool:
    """Whether the user asked for this exception, so that it is let through to the training loop."""
    return bool(getattr(error, MARK, False))


class Stopper:
    """Looks at each step for what is terminal, and carries out what the user wants."""

    def __init__(self, wanted: OnFailure | None) -> None:
        self.wanted = checked(wanted)
        self.should_stop = False
        self._bad_losses = self._skips = 0

    def look(self, record: StepRecord, new: Sequence[SemanticEvent]) -> bool:
        """Whether this step shows, or goes on to show, that the training cannot recover."""
        if self.wanted is None or self.should_stop:
            return False
        if record.loss is not None:
            self._bad_losses = 0 if math.isfinite(record.loss) else self._bad_losses + 1
        self._skips = self._skips + 1 if record.skipped else 0
        weights = any(e.symptom == "nonfinite_weight" and not e.is_recovery for e in new)
        again = self._bad_losses and self._bad_losses % BAD_LOSSES == 0
        return bool(weights or again or (self._skips and self._skips % SKIPS == 0))

    def ask(self, dbg: NeuralDbg) -> None:
        """At the session's next safe place (a forward of the model, the end of an optimizer step): act if it failed."""
        session = dbg._session
        before = session.while_active

        def is_active() -> bool:
            session.while_active = before
            if dbg._reason(finished=False).verdict is Verdict.FAILED:
                session.on_end = lambda: self.act(dbg)
                return False
            return before is None or before()

        session.while_active = is_active

    def act(self, dbg: NeuralDbg) -> None:
        """End the session, which hands the diagnosis to the sinks; then do what was asked for."""
        dbg.finish()
        self.should_stop = True
        diagnosis = dbg.diagnose()
        try:
            if self.wanted == "raise":
                raise TrainingFailed(diagnosis)
            if callable(self.wanted):
                self.wanted(diagnosis)
        except Exception as error:
            setattr(error, MARK, True)
            raise
