"""What the callbacks of Lightning and transformers have in common; light, for every Lightning Trainer loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg import sinks

if TYPE_CHECKING:
    from neuraldbg import NeuralDbg
    from neuraldbg.diagnosis import Diagnosis


def check_settings(settings: Any) -> None:
    """Raise TypeError where the argument is given and no Settings: here, not when the training begins."""
    from neuraldbg.settings import Settings

    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"settings is a neuraldbg.Settings, got {settings!r}; pass Settings(...)")


def may_stop(ranks: int, what: str) -> bool:
    """Whether on_failure="stop" can end the training; of several ranks the others would wait for this one for ever."""
    if ranks > 1:
        sinks.log.warning("NeuralDBG does not stop %s on one rank of several; use on_failure='raise'", what)
    return ranks == 1


def ended(dbg: NeuralDbg, error: BaseException | None) -> Diagnosis:
    """The session's diagnosis, after it was left by this exception or at the training's end."""
    dbg.__exit__(*((type(error), error, error.__traceback__) if error is not None else (None, None, None)))
    return dbg.diagnose()
