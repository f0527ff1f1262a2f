"""Graphs of earlier losses that somebody still holds: memory that grows with every step.

A token is left in the dictionary that autograd keeps with the last node of a loss. It lives as long as that node does,
and we hold it weakly.
"""

from __future__ import annotations

import weakref

from torch import Tensor

KEY = "neuraldbg"
MARKS = 64  # at most; then every other one goes
AGE = 5  # steps after which a loop that lets go has let go
FEWEST = 20  # graphs; a few losses kept for a mean over ten steps are usual


class _Token:
    """Alive as long as its graph."""


class KeptGraphs:
    def __init__(self) -> None:
        self.marks: list[tuple[int, weakref.ref[_Token]]] = []
        self.every = 1

    def mark(self, loss: Tensor, step: int) -> None:
        """Remember the graph of this step's loss, without holding it."""
        if step % self.every or (self.marks and self.marks[-1][0] == step):
            return
        notes = getattr(loss.grad_fn, "metadata", None)
        if not isinstance(notes, dict):
            return
        token = notes[KEY] = _Token()
        self.marks.append((step, weakref.ref(token)))
        if len(self.marks) > MARKS:
            self.every *= 2
            self.marks = [m for m in self.marks if m[0] % self.every == 0]

    def note(self, step: int) -> str:
        """A sentence where the graphs of all earlier losses are alive, else ""."""
        old = [token for made, token in self.marks if made <= step - AGE]
        if len(old) < FEWEST or any(token() is None for token in old):
            return ""
        return (
            "memory, but the graphs of all earlier losses are still held, so it grows with every step:"
            " keep loss.item() instead of loss, and detach() a state that is carried on"
        )
