"""A plain loop, seen from outside: what a peer's page asks its user to write into the loop is called from here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from benchmarks import corpus
from benchmarks.peers.adapters import Peer, Said


class Loop:
    """Hands the events of one training to a peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.own = {id(p) for p in peer.model.parameters()}
        self.started = False
        self.step = 0
        self.loss: Tensor | None = None

    def made(self, optimizer: Optimizer) -> None:
        trains = any(id(p) in self.own for group in optimizer.param_groups for p in group["params"])
        if trains and not self.started:
            self.started = True
            self.peer.start(optimizer)

    def steps(self, optimizer: Optimizer, *_: Any) -> None:
        self.made(optimizer)
        if self.started:
            self.peer.before_step(self.step, self.loss, optimizer)

    def record(self, loss: float) -> None:
        if self.started:
            self.peer.after_step(self.step, loss)
        self.step += 1


@contextmanager
def _replaced(owner: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, made(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def peer_says(
    adapter: Callable[[nn.Module, Path], Peer], job: corpus.Job, folder: Path
) -> tuple[list[Said], str | None]:
    """(what the peer says of this training, the error that ended it)."""
    models, train = corpus.build(job)
    whole = next(iter(models.values())) if len(models) == 1 else nn.ModuleDict(models)
    peer = adapter(whole, folder)
    loop = Loop(peer)

    def seen(original: Any) -> Any:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            root = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
            loop.loss = root if isinstance(root, Tensor) else None
            return original(tensors, *args, **kwargs)

        return backward

    def told(original: Any) -> Any:
        @functools.wraps(original)
        def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            loop.made(self)

        return init

    error = None
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(StringIO()))
        stack.enter_context(_replaced(torch.autograd, "backward", seen))
        stack.enter_context(_replaced(Optimizer, "__init__", told))
        stack.callback(register_optimizer_step_pre_hook(loop.steps).remove)
        try:
            train(loop.record)
        except Exception as problem:
            error = f"{type(problem).__name__}: {' '.join(str(problem).split())[:120]}"
        said = peer.end() if loop.started else []
    if error and "anomaly" in type(peer).__name__.lower() and "returned nan values" in error:
        return [Said(error, True, "data_anomaly")], None
    return said, error
