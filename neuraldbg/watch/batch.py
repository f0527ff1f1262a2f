"""What enters the model: measured on sampled steps, and its samples named where their loader is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuraldbg.watch import inputs, loader
from neuraldbg.watch.forward import first_tensor
from neuraldbg.watch.host import has_values

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session

ENTRIES = 4  # arguments of one call that are looked at


def enter(session: Session, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A model is called with these arguments."""
    if not session.sampling and not loader.handed():
        return
    entry = session.forward.places[index].name
    named = [(str(k), a) for k, a in enumerate(args)] + list(kwargs.items())
    for key, value in named[:ENTRIES]:
        x = first_tensor(value)
        if x is None or not x.numel() or not has_values(x):
            continue
        if session.samples is None:
            session.samples = loader.samples_of(x)
        name = f"{entry}.{key}" if entry else key
        if not session.sampling or name in session.batch or not x.is_floating_point():
            continue
        if x.requires_grad or x.grad_fn is not None or _ours(session, x):
            continue  # made by a model, not data
        session.batch[name] = inputs.measure(name, x)


def _ours(session: Session, x: Tensor) -> bool:
    """Whether this tensor shares memory with an output of this step (a detached fake sample, say)."""
    where = x.untyped_storage().data_ptr()
    return any(
        (t := ref()) is not None and t.untyped_storage().data_ptr() == where
        for ref, _ in session.forward.outputs.values()
    )
