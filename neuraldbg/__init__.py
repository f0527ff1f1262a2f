"""NeuralDBG: why a PyTorch training failed, with layer, step, evidence and remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.diagnosis import CausalHypothesis, Coupling, Diagnosis, Verdict
from neuraldbg.events import (
    ActivationHealth,
    DataHealth,
    EventType,
    GradientHealth,
    OptimizerHealth,
    SemanticEvent,
)
from neuraldbg.failure import TrainingFailed

if TYPE_CHECKING:
    from neuraldbg.settings import Settings
    from neuraldbg.sweep.compare import compare
    from neuraldbg.watch import NeuralDbg
else:

    def __getattr__(name: str) -> Any:
        """Import the watcher, and with it torch, when it is first asked for; the settings, and with them pydantic."""
        if name == "NeuralDbg":
            from neuraldbg.watch import NeuralDbg

            return NeuralDbg
        if name == "Settings":
            from neuraldbg.settings import Settings

            return Settings
        if name == "compare":
            from neuraldbg.sweep.compare import compare

            return compare
        raise AttributeError(f"module 'neuraldbg' has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "ActivationHealth",
    "CausalHypothesis",
    "Coupling",
    "DataHealth",
    "Diagnosis",
    "EventType",
    "GradientHealth",
    "NeuralDbg",
    "OptimizerHealth",
    "SemanticEvent",
    "Settings",
    "TrainingFailed",
    "Verdict",
    "compare",
]
