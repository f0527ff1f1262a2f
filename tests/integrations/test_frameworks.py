"""skorch and ignite need no adapter: a session around their training sees what a plain loop shows."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, GradientNormClipping
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.testing import Memory

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ignite loads a part of torch that is deprecated
    from ignite.engine import Engine, Events

BATCH, STEPS = 8, 24


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


class Told(Callback):  # type: ignore[misc]
    """The norm of the gradient before skorch clips it."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_grad_computed(self, net: Any, named_parameters: Any, **kwargs: Any) -> None:
        self.norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in net.module_.parameters())))


def data(broken_at: int | None = None) -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((BATCH * STEPS, 6)).astype("float32")
    y = (x[:, 0] > 0).astype("int64") + (x[:, 1] > 1)
    if broken_at is not None:
        x[BATCH * broken_at + 3, 2] = math.nan
    return x, y


def by_skorch(x: Any, y: Any, told: Told, sink: Memory) -> NeuralDbg:
    net = NeuralNetClassifier(
        Net, criterion=nn.CrossEntropyLoss, max_epochs=1, lr=0.05, batch_size=BATCH, train_split=None,
        callbacks=[told, GradientNormClipping(0.01)], verbose=0,
    )  # fmt: skip
    net.initialize()  # the module is made here; `fit` would make another, `partial_fit` goes on with it
    with NeuralDbg(net.module_, sinks=[sink]) as dbg:
        net.partial_fit(x, y)
    return dbg


def by_ignite(x: Any, y: Any, told: Told, sink: Memory) -> NeuralDbg:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    batches = [(torch.tensor(a), torch.tensor(b)) for a, b in zip(np.split(x, STEPS), np.split(y, STEPS), strict=True)]

    def update(engine: Engine, batch: Any) -> float:
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        told.norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)))
        optimizer.step()
        return loss.item()

    trainer = Engine(update)

    @trainer.on(Events.ITERATION_COMPLETED(every=6))
    def evaluate(engine: Engine) -> None:
        model.eval()
        with torch.no_grad():
            model(batches[0][0])

    with NeuralDbg(model, sinks=[sink]) as dbg:
        trainer.run(batches, max_epochs=1)
    return dbg


def by_hand(x: Any, y: Any, told: Told, sink: Memory) -> NeuralDbg:
    """The plain loop that the others are held against."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with NeuralDbg(model, sinks=[sink]) as dbg:
        for a, b in zip(np.split(x, STEPS), np.split(y, STEPS), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.tensor(a)), torch.tensor(b)).backward()
            told.norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)))
            optimizer.step()
    return dbg


@pytest.mark.parametrize("way", [by_skorch, by_ignite])
def test_steps_and_norms_are_those_of_the_framework_before_clipping(way: Any) -> None:
    told, sink = Told(), Memory()
    dbg = way(*data(), told, sink)
    assert dbg.diagnose().steps == STEPS == len(told.norms)
    assert [norm for _, norm in sink.series["gradient_norm"]] == pytest.approx(told.norms, rel=1e-4)
    assert str(dbg.diagnose().verdict) == "healthy"


@pytest.mark.parametrize("way", [by_skorch, by_ignite])
def test_a_broken_batch_is_diagnosed_as_in_a_plain_loop(way: Any) -> None:
    tops = [one(*data(broken_at=9), Told(), Memory()).diagnose().top for one in (way, by_hand)]
    assert [top and (top.cause, top.layer_name, top.step) for top in tops] == [("nan_in_input", None, 9)] * 2


@pytest.mark.parametrize("way", [by_skorch, by_ignite])
def test_a_watched_training_has_the_numbers_of_the_plain_loop(way: Any) -> None:
    told, plain = Told(), Told()
    way(*data(), told, Memory()), by_hand(*data(), plain, Memory())
    assert told.norms == pytest.approx(plain.norms, rel=1e-4)
