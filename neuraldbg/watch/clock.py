"""Which step it is: plain logic over the signals, no tensor.

A step is one `record_loss` call where the user makes them; else a full cycle of the observed pattern (forward,
backward, one round of the optimizers; a step that GradScaler skips counts, micro-batches of an accumulation do not);
`dbg.step = n` switches counting off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

MICRO_BATCHES = 64  # backward passes without any update; more are the steps of a loop that moves nothing
ROUNDS = 32  # steps of one optimizer alone after which the others are taken to be retired


class StepClock:
    """Counts steps; `due` says whether the open one is over when the next activity begins."""

    def __init__(self) -> None:
        self.step = 0
        self.told = False
        self.explicit = False
        self.known: set[int] = set()
        self.open()

    def open(self) -> None:
        self.loss_told = False
        self.backwards = 0
        self.forwards = 0
        self.rounds: Counter[int] = Counter()

    @property
    def empty(self) -> bool:
        return not (self.loss_told or self.backwards or self.forwards or self.rounds)

    @property
    def stepped(self) -> bool:
        return bool(self.rounds)

    def optimizer(self, key: int) -> None:
        """An optimizer stepped, or a scaler skipped its step."""
        self.rounds[key] += 1
        self.known.add(key)
        if self.rounds[key] >= ROUNDS:
            self.known = set(self.rounds)

    def joined(self) -> None:
        """The steps before this one were its first part: the optimizers that ended them have had their turn."""
        for key in self.known:
            self.rounds[key] += 1

    def due(self, moved: Callable[[], bool]) -> bool:
        if self.explicit or self.empty:
            return False
        if self.told:
            return self.loss_told
        if self.rounds:
            return self.known <= set(self.rounds)
        if self.known or not self.backwards:
            return False
        return self.backwards >= MICRO_BATCHES or moved()

    def close(self) -> None:
        if not self.explicit:
            self.step += 1
        self.open()
