"""What a traced graph copies of its modules' outputs on a CPU, and how it is read outside the graph.

A graph looks at every step, sampled or not, and on a CPU statistics cost as much as the operators around them; a few
rows that are copied cost a tenth of it, and their statistics are taken outside, on sampled steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOST = 1 << 12  # elements of a traced module's output on a CPU: a root mean square to 1 %, at a tenth of a pass
MOST_UNITS = 1 << 14  # of a rectifier, whose units are counted: the more rows, the sooner one is known to be dead
ROWS = 512  # enough for a spread, and for a unit to be silent on all of them
HEAD = 4  # numbers before the values: units, rows taken, every how many-th unit, rows there were
GOLDEN = 0.6180339887498949  # its multiples lie evenly between whole numbers, and follow no period


class Sample:
    """Memory for one module's rows. Until a graph writes into it, it takes none."""

    def __init__(self) -> None:
        self.values = torch.empty(HEAD + MOST_UNITS, dtype=torch.float32, device="cpu")
        self._head = self.values.numpy()[:HEAD]  # to ask it is no operator, and waits for nothing
        self._head[0] = 0.0

    def read(self) -> tuple[Tensor, bool] | None:
        """([rows, units], whether the rows are whole), once; None where nothing was written since."""
        if not self._head[0]:
            return None
        units, taken, apart, rows = (int(v) for v in self._head)
        self._head[0] = 0.0
        return self.values[HEAD : HEAD + units * taken].view(taken, units)[: min(taken, rows)], apart == 1


def some_rows(out: Tensor, most: int) -> Tensor:
    """Some rows of an output, at most `most` elements, as one vector of head and values.

    The rows lie all over the batch, one in each of as many equal parts. Nothing depends on the number of samples but
    values, so that another batch size makes no other graph.
    """
    x = out.detach()
    x = x.reshape(-1, 1) if x.dim() < 2 else x
    pictures = x.dim() >= 4
    units = x.shape[1] if pictures else x.shape[-1]
    places = x.shape[2:] if pictures else x.shape[1:-1]
    apart = max(1, -(-2 * units // most))  # a spread needs two rows
    taken = max(2, min(ROWS, most // units))
    rows = torch.zeros((), dtype=torch.int64, device=x.device) + x.shape[0] * math.prod(places)
    k = torch.arange(taken, device=x.device)
    spread = ((k + (k * GOLDEN) % 1.0) * (rows / taken)).long()  # in its part at another place each: no one position
    at = torch.minimum(torch.where(rows <= taken, k, spread), rows - 1)
    index: list[
        Tensor | slice
    ] = []  # by dimension: a flat view of a picture would ask the compiler for another layout of it
    for size in reversed(places):
        index.insert(0, at % size)
        at = at // size
    if pictures:
        index.insert(0, slice(None))  # the units lie between
    values = x[tuple([at, *index])][:, ::apart].float()
    head = torch.tensor([values.shape[1], taken, apart], dtype=torch.float32, device=x.device)
    return torch.cat([head, rows.float().reshape(1), values.reshape(-1)])
