"""How often watching makes the host wait for the device: never on unsampled steps, once on sampled ones.

On a CPU nothing waits, but the calls that would are the same. Those of PyTorch's own are seen below Python by a
dispatch mode (`_local_scalar_dense` is `.item()`, `nonzero` an index by a mask, `_to_copy` to the CPU a copy); those of
Python, where a CPU tensor needs no operator (`tolist`, `numpy`), by a function mode. The counts of the training
itself are taken off.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from neuraldbg import NeuralDbg
from neuraldbg.watch.closing import LIGHT_STEPS
from neuraldbg.watch.governor import Level

WAITING = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount", "unique", "_unique2"}
READING = {"tolist", "numpy", "cpu", "__array__"}


class Operators(TorchDispatchMode):
    """Operators that wait for the device when their tensors lie there."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        by_mask = name in ("index", "index_put", "index_put_", "_unsafe_index") and any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        )
        away = name == "_to_copy" and torch.device(kwargs.get("device") or "meta").type == "cpu"
        if name in WAITING or by_mask or away:
            self.seen[name] += 1
        return func(*args, **kwargs)


class Reads(TorchFunctionMode):
    """Reads of a whole tensor from Python."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in READING:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def waits():
    with Operators() as operators, Reads() as reads:
        counted = Counter()
        yield counted
        counted.update(operators.seen + reads.seen)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.block(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def mlp():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 1), nn.Sigmoid()
    )


def labels(n):
    return torch.arange(n) % 3


TRAININGS = {
    "mlp, cross-entropy": (mlp, lambda: torch.randn(24, 4), nn.CrossEntropyLoss(), lambda: labels(24)),
    "cnn, binary cross-entropy": (cnn, lambda: torch.randn(8, 1, 8, 8), nn.BCELoss(), lambda: torch.rand(8, 1).round()),
    "transformer, cross-entropy": (
        Words,
        lambda: torch.randint(0, 20, (8, 5)),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda: labels(8),
    ),
    "lstm, squares": (Recurrent, lambda: torch.randn(8, 6, 4), nn.MSELoss(), lambda: torch.randn(8, 1)),
    "lstm, huber": (Recurrent, lambda: torch.randn(8, 6, 4), nn.HuberLoss(), lambda: torch.randn(8, 1)),
}


@pytest.fixture(params=list(TRAININGS))
def training(request):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make, batch, criterion, target = TRAININGS[request.param]
    model = make()
    return model, Steps(model, batch, criterion, target)


class Steps:
    """A training that goes one step a call."""

    def __init__(self, model, batch, criterion, target):
        self.model, self.criterion = model, criterion
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        self.pairs = [(batch(), target()) for _ in range(8)]
        self.done = 0

    def forward(self):
        x, y = self.pairs[self.done % len(self.pairs)]
        self.optimizer.zero_grad()
        return self.criterion(self.model(x), y)

    def __call__(self, dbg=None):
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        if dbg is not None:
            dbg.record_loss(loss.detach())
        self.done += 1


def each(steps, dbg, count, tell=False):
    """Waits of each of `count` steps as whole cycles, from one forward to the next, with the level of each."""
    counts, levels = [], []
    for _ in range(count):
        with waits() as counted:
            steps(dbg if tell else None)
        counts.append(counted)
        levels.append(dbg._session.level)
    return counts, levels


def test_the_counting_sees_every_way_of_waiting():
    """A count that sees nothing proves nothing: each way is tried on its own."""
    x = torch.arange(4.0)
    ways = {
        "item": x[0].item,
        "bool": lambda: bool(x[0] > 0),
        "tolist": x.tolist,
        "by index": lambda: x[x.argmax()],
        "by mask": lambda: x[x > 1],
        "nonzero": x.nonzero,
        "bincount": lambda: torch.bincount(x.long()),
        "equal": lambda: torch.equal(x, x),
        "numpy": x.numpy,
    }
    for name, way in ways.items():
        with waits() as counted:
            way()
        assert sum(counted.values()) >= 1, name
    with waits() as counted:
        (x * 2).sum()
        x.amax()
        x.masked_fill(x > 1, 0.0)
    assert not counted


def test_the_trainings_themselves_do_not_wait(training):
    _, steps = training
    with waits() as counted:
        for _ in range(3):
            steps()
    assert not counted


def test_a_sampled_step_waits_once(training):
    model, steps = training
    with NeuralDbg(model, cadence=1) as dbg:
        steps()  # its facts are read while the model is taken in
        counts, levels = each(steps, dbg, 8)
        seen = dbg._session.sampled_count
    assert levels == [Level.FULL] * 8
    assert seen >= 8
    assert counts == [Counter(tolist=1)] * 8


def test_a_sampled_step_that_clips_a_part_of_the_model_waits_once(training, recorded):
    """The norms of the gradients as they were used come with the others."""
    model, steps = training
    part = list(model.parameters())[:2]

    def clip(*_):  # by hand: of the fused one the version counters say nothing while operators are counted
        for p in part:
            p.grad.mul_(1e-3 / (1e-3 + p.grad.norm()))

    steps.optimizer.register_step_pre_hook(clip)
    dbg, records = recorded(model, cadence=1)
    with dbg:
        steps()
        counts, _ = each(steps, dbg, 8)
    assert counts == [Counter(tolist=1)] * 8
    assert all(p.used is not None for p in records[-1].parameters.values())


def test_a_sampled_step_of_a_recorded_loss_waits_once(training):
    model, steps = training
    with NeuralDbg(model, cadence=1) as dbg:
        steps(dbg)
        counts, _ = each(steps, dbg, 8, tell=True)
    assert [c - Counter(_local_scalar_dense=1) for c in counts] == [Counter(tolist=1)] * 8  # a CPU loss is read at once


def test_an_unsampled_step_never_waits(training):
    """The gradient norm is taken on each of them; its number stays on the device until the next sampled step."""
    model, steps = training
    with NeuralDbg(model, cadence=1000) as dbg:
        steps()
        steps()
        counts, levels = each(steps, dbg, LIGHT_STEPS - 4)
    assert levels == [Level.NORM] * (LIGHT_STEPS - 4)
    assert counts == [Counter()] * (LIGHT_STEPS - 4)


def test_unsampled_steps_are_read_together_once_in_many(training):
    model, steps = training
    with NeuralDbg(model, cadence=1000) as dbg:
        steps()
        counts, _ = each(steps, dbg, 3 * LIGHT_STEPS)
    assert sum(counts, Counter()) == Counter(tolist=3)


def test_a_gradient_used_twice_is_looked_at_once_more():
    """Version counters raise the suspicion, only the values confirm it: the one wait that a sampled step may add."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = mlp()
    g = [torch.randn(24, 4) for _ in range(8)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    counts = []
    with NeuralDbg(model, cadence=1):
        for x in g:  # no zero_grad
            with waits() as counted:
                model(x).square().mean().backward()
                optimizer.step()
            counts.append(counted)
    assert counts[0] == Counter()
    assert counts[2:] == [Counter(tolist=1)] * 6
    assert sum(counts[1].values()) == 2
