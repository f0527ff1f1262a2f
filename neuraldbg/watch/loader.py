"""Which samples of the data set a batch is made of, as the sampler of a DataLoader gave them.

While a session is open (signals.py) the two methods through which every iterator of a DataLoader goes are wrapped: the
one that asks the sampler and the one that hands a batch over. Nothing is drawn, copied or changed. A batch is known
again by its memory; one that was moved or cast on its way to the model by its shape, if there is no other that it
could be.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import dataloader

KEPT = 4  # batches handed over last; a loop that prefetches holds one or two
TENSORS = 8  # of one batch


@dataclass
class _Flight:
    """Batches that an iterator has asked its sampler for and not handed over yet (with workers, several)."""

    asked: deque[Sequence[int]] = field(default_factory=deque)


@dataclass
class _Batch:
    tensors: tuple[weakref.ref[Tensor], ...]
    shapes: tuple[torch.Size, ...]
    samples: Sequence[int]
    met: bool = False


@dataclass
class _Loop:
    """ahead: it once held several batches that no model had seen; which of them comes next is then not certain."""

    ahead: bool = False


_loop = _Loop()
_flights: weakref.WeakKeyDictionary[Any, _Flight] = weakref.WeakKeyDictionary()
_handed: deque[_Batch] = deque(maxlen=KEPT)


def handed() -> bool:
    """Whether a DataLoader has given a batch that is still known."""
    return bool(_handed)


def samples_of(x: Tensor) -> Sequence[int] | None:
    """Indices of the samples in this batch, in its order; None where that is not certain."""
    if not _handed or not x.dim():
        return None
    rows = x.shape[0]
    for batch in reversed(_handed):
        if len(batch.samples) == rows and any((t := ref()) is not None and _same(t, x) for ref in batch.tensors):
            batch.met = True
            return batch.samples
    fresh = [b for b in _handed if not b.met]
    for b in fresh:
        b.met = True
    _loop.ahead = _loop.ahead or len(fresh) > 1
    if len(fresh) != 1 or _loop.ahead:
        return None
    return fresh[0].samples if len(fresh[0].samples) == rows and fresh[0].shapes.count(x.shape) == 1 else None


def _same(t: Tensor, x: Tensor) -> bool:
    if t is x:
        return True
    if t.device != x.device or t.shape[:1] != x.shape[:1] or t.storage_offset() != x.storage_offset():
        return False
    return t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() != 0


def _tensors(data: Any, depth: int = 3) -> Iterator[Tensor]:
    if isinstance(data, Tensor):
        yield data
    elif depth and isinstance(data, dict):
        for part in data.values():
            yield from _tensors(part, depth - 1)
    elif depth and isinstance(data, (tuple, list)):
        for part in data[:TENSORS]:
            yield from _tensors(part, depth - 1)


def _asked(iterator: Any, samples: Any) -> None:
    """The sampler was asked for the next batch. An iterator that began before we looked is left alone."""
    known = _flights.get(iterator)
    if known is None:
        if getattr(iterator, "_num_yielded", 1) or getattr(iterator, "_send_idx", 0):
            return
        known = _flights[iterator] = _Flight()
    if not getattr(iterator, "_send_idx", 0):  # no workers, or the first of an epoch: nothing else can be on its way
        known.asked.clear()
    whole = isinstance(samples, (list, tuple)) and all(isinstance(i, int) for i in samples)
    known.asked.append(samples if whole and getattr(iterator, "_in_order", True) else ())


def _given(iterator: Any, data: Any) -> None:
    known = _flights.get(iterator)
    samples = known.asked.popleft() if known is not None and known.asked else ()
    if samples:
        found = [t for t, _ in zip(_tensors(data), range(TENSORS), strict=False)]
        _handed.append(_Batch(tuple(map(weakref.ref, found)), tuple(t.shape for t in found), samples))


def _lost(iterator: Any) -> None:
    _flights.pop(iterator, None)


def _quietly(note: Callable[..., None], *arguments: Any) -> None:
    """Whatever goes wrong here costs the indices, never the batch."""
    try:
        note(*arguments)
    except Exception:
        _forget()


def _forget() -> None:
    _flights.clear()
    _handed.clear()


def wrap() -> Callable[[], None]:
    """Look at the iterators from now on; returns what undoes it."""
    kind: Any = getattr(dataloader, "_BaseDataLoaderIter", None)
    if kind is None or not hasattr(kind, "_next_index"):
        return lambda: None  # another version of PyTorch: batches are named by step and fingerprint alone
    ask, give = kind._next_index, kind.__next__

    @functools.wraps(ask)
    def asks(self: Any) -> Any:
        samples = ask(self)
        _quietly(_asked, self, samples)
        return samples

    @functools.wraps(give)
    def gives(self: Any) -> Any:
        try:
            data = give(self)
        except BaseException:  # the epoch's end, or a sample that could not be read: what was asked for is not known
            _quietly(_lost, self)
            raise
        _quietly(_given, self, data)
        return data

    kind._next_index, kind.__next__ = asks, gives

    def restore() -> None:
        if kind._next_index is asks:
            kind._next_index = ask
        if kind.__next__ is gives:
            kind.__next__ = give
        _forget()
        _loop.ahead = False

    return restore
