"""What `on_failure="raise"` raises; it imports no torch, so that who catches it need not."""

from __future__ import annotations

from neuraldbg.diagnosis import Diagnosis


class TrainingFailed(RuntimeError):
    """The training cannot recover; `diagnosis` says why. Raised only where `on_failure="raise"` asked for it."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis)
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        return str(self.diagnosis)
