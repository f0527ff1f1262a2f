"""Unusual tensors, models and calls: whatever a training puts in, it goes on as it would without the session."""

from __future__ import annotations

import copy
import itertools
import queue
import random
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from neuraldbg import NeuralDbg
from neuraldbg.watch.host import bad_value, host_value

torch.set_num_threads(1)


class Wrapper(Tensor):
    """A tensor around another one, with no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        out = tree_map_only(Tensor, Wrapper, func(*plain[0], **plain[1]))
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def step(model, optimizer, loss_of=lambda y: y.square().mean(), seed=0, given=None):
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed)) if given is None else given
    optimizer.zero_grad()
    loss = loss_of(model(x))
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model, steps=4, **how):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return [step(model, optimizer, seed=k, **how) for k in range(steps)]


def notes(dbg):
    return dbg.diagnose().facts.coverage.notes


def ended(dbg):
    return [n for n in notes(dbg) if "error of NeuralDBG" in n]


# -- tensors whose memory cannot be read ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_plain_number_on_the_cpu_is_read_from_its_memory(dtype):
    assert host_value(torch.tensor(1.5, dtype=dtype)) == 1.5
    assert bad_value(torch.tensor(float("nan"), dtype=dtype))


def test_a_tensor_without_memory_of_its_own_is_unknown():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(())
    turned = torch.tensor(1 + float("inf") * 1j).conj().imag
    sparse = torch.tensor([float("nan")]).to_sparse()
    for t in (Wrapper(torch.tensor(float("nan"))), fake, torch.ones((), device="meta"), turned, sparse):
        assert host_value(t) is None
        assert bad_value(t) is False


def test_a_number_inside_a_transform_is_unknown():
    seen = []
    torch.func.vmap(lambda x: (seen.append(host_value(x)), x)[1])(torch.full((3,), float("nan")))
    torch.func.grad(lambda x: (seen.append(host_value(x)), x)[1])(torch.tensor(float("nan")))
    assert seen == [None, None]


def test_a_zero_that_has_no_memory_is_unknown():
    assert host_value(torch.zeros(())) == 0.0
    assert host_value(torch.ops.aten._efficientzerotensor([])) is None


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_parameters_that_cannot_be_measured_are_left_out_and_said():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 1)
            self.wrapped = nn.Parameter(Wrapper(torch.ones(1)))
            self.phase = nn.Parameter(torch.ones(1, dtype=torch.complex64))
            self.rows = nn.Parameter(torch.eye(3).to_sparse_csr(), requires_grad=False)
            self.unused = nn.Parameter(torch.empty(2, device="meta"))

        def forward(self, x):
            return self.inner(x) + self.phase.abs()

    torch.manual_seed(0)
    model = Mixed()
    twin = copy.deepcopy(model.inner)
    optimizer = torch.optim.SGD([*model.inner.parameters(), model.phase], lr=0.01)
    with NeuralDbg(model) as dbg:
        for k in range(4):
            step(model, optimizer, seed=k)
    facts = dbg.diagnose().facts
    assert [p.name for p in facts.parameters] == ["inner.weight", "inner.bias"]
    assert not ended(dbg)
    assert any("'wrapped' (Wrapper) and 3 more" in n for n in notes(dbg))
    assert not torch.equal(twin.weight, model.inner.weight)


# -- the signals of backward and of the scaler ------------------------------------------------------------------------


def test_a_generator_of_losses_reaches_backward_whole():
    model = net()
    x = torch.ones(2, 4)
    with NeuralDbg(model):
        torch.autograd.backward(model(x).sum() for _ in range(3))
    watched = model[0].weight.grad.clone()
    model.zero_grad()
    torch.autograd.backward(model(x).sum() for _ in range(3))
    assert torch.equal(watched, model[0].weight.grad)


def test_a_generator_given_to_a_scaler_is_scaled_whole():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with NeuralDbg(net()):
        assert [float(t) for t in scaler.scale(torch.tensor(float(k)) for k in range(3))] == [0.0, 2.0, 4.0]


def test_what_backward_and_the_scaler_refuse_is_refused_by_them():
    with NeuralDbg(net()) as dbg:
        for call in (torch.autograd.backward, torch.amp.GradScaler("cpu").scale):
            with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
                call(3)
            assert "neuraldbg" not in str(caught.traceback[-1].path)
    assert not ended(dbg)


def test_an_error_of_ours_at_a_scaled_loss_stays_with_us(monkeypatch):
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    with NeuralDbg(net()) as dbg:
        monkeypatch.setattr(dbg._session.replay, "loss_scaled", lambda loss: 1 / 0)
        assert float(torch.amp.GradScaler("cpu", init_scale=4.0).scale(torch.tensor(1.0))) == 4.0
    assert ended(dbg)


# -- saved tensors that are packed by hooks ---------------------------------------------------------------------------


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def checkpointed(model, optimizer, seed):
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    loss = checkpoint(lambda: nn.functional.mse_loss(model(x), x[:, :1]) * 2, use_reentrant=False)
    loss.backward()
    optimizer.step()


def hooked(model, optimizer, seed):
    """Each packed tensor may be unpacked once."""
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
    held = {}

    def pack(t):
        held[len(held)] = t.detach()
        return len(held) - 1

    optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda k: held.pop(k)):
        loss = nn.functional.mse_loss(model(x), x[:, :1]) * 2
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("one_step", [checkpointed, hooked])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_loss_whose_saved_tensors_are_packed_is_not_unpacked_by_us(one_step, steps):
    model, twin = normed(), normed()
    for m, session in ((model, NeuralDbg(model, cadence=2)), (twin, None)):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.01)
        if session is None:
            for k in range(steps):
                one_step(m, optimizer, k)
        else:
            with session as dbg:
                for k in range(steps):
                    one_step(m, optimizer, k)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))
    assert [n for n in notes(dbg) if n.startswith("saved tensors are packed")]
    assert not ended(dbg)


def test_a_loss_outside_of_a_checkpointed_block_is_still_read(recorded):
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = normed()

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    torch.manual_seed(0)
    model = Block()
    dbg, records = recorded(model)
    with dbg:
        train(model, 4, loss_of=lambda y: nn.functional.mse_loss(y, torch.zeros_like(y)) / 4)
    assert [r.loss_stats.kind for r in records] == ["mse"] * 4
    assert model.inner[1].num_batches_tracked == 4 * 2  # once in forward, once in the checkpoint's own recomputation


# -- models that cannot be taken in -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("made", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2, 4))])
def test_a_scripted_or_traced_model_is_refused_with_a_word_on_what_to_enter(made):
    with pytest.raises(TypeError, match=r"scripted or traced model \(Sequential\).*eager"):
        NeuralDbg(made(net()))


def test_a_norm_that_lacks_the_usual_attributes_is_watched(monkeypatch):
    class Own(nn.LayerNorm):
        def __init__(self, width):
            nn.Module.__init__(self)
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return (x - x.mean(-1, keepdim=True)) * self.weight

    model = nn.Sequential(nn.Linear(4, 8), Own(8), nn.Linear(8, 1))
    with NeuralDbg(model) as dbg:
        train(model)
    assert not ended(dbg)
    assert "1" in {m.name for m in dbg.diagnose().facts.modules}


def test_a_model_that_cannot_be_taken_in_trains_and_is_said_to_be_unwatched(monkeypatch):
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)

    class Odd(nn.Linear):
        def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
            if not recurse:
                raise RuntimeError("not now")
            return super().named_parameters(prefix, recurse, remove_duplicate)

    odd, usual = Odd(4, 1), net()
    with NeuralDbg({"odd": odd, "usual": usual}) as dbg:
        train(usual)
        odd(torch.ones(2, 4)).sum().backward()
    assert any("'odd' is not watched: RuntimeError: not now" in n for n in notes(dbg))
    assert not ended(dbg)
    assert dbg.diagnose().facts.models == ("usual",)


# -- what enters and leaves modules -----------------------------------------------------------------------------------


class Then(nn.Module):
    """Applies a function to what a linear layer gives."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Back(nn.Module):
    def forward(self, x):
        return x.to_dense() if x.layout is not torch.strided else x.real if x.is_complex() else x


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    "function",
    [lambda x: x.to_sparse(), lambda x: torch.complex(x, x).conj(), lambda x: x.sum() * 1],
    ids=["sparse", "conjugated", "number"],
)
def test_an_unusual_output_is_passed_over(function):
    last = nn.Softmax(dim=0) if "sum" in function.__code__.co_names else nn.Identity()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), Then(function), Back(), last)
    with NeuralDbg(model) as dbg:
        train(model)
    assert not ended(dbg)
    assert dbg.diagnose().facts.coverage.steps == 4
    assert not [n for n in notes(dbg) if "left out" in n]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_input_is_passed_over(layout):
    class Reads(nn.Linear):
        def forward(self, x):
            return torch.sparse.mm(x, self.weight.t())

    torch.manual_seed(0)
    model = nn.Sequential(Reads(4, 3), nn.Linear(3, 1))
    x = torch.eye(4).to_sparse(layout=layout)
    with NeuralDbg(model) as dbg:
        train(model, given=x)
    assert not ended(dbg)
    assert dbg.diagnose().facts.coverage.modules_seen == 3


def test_a_layer_whose_statistics_fail_is_left_out_and_the_others_go_on(monkeypatch):
    from neuraldbg.watch import forward

    def fails(out, *rest):
        if out.shape[-1] == 8:
            raise ArithmeticError
        return real(out, *rest)

    real = forward.output_row
    monkeypatch.delenv("NEURALDBG_STRICT", raising=False)
    monkeypatch.setattr(forward, "output_row", fails)
    model = net()
    with NeuralDbg(model) as dbg:
        train(model)
    assert not ended(dbg)
    assert [n for n in notes(dbg) if "left out" in n] == [
        "statistics of layer '0' were left out: ArithmeticError",
        "statistics of layer '1' were left out: ArithmeticError",
    ]


# -- what a second forward could change -------------------------------------------------------------------------------


class Holds(nn.Module):
    """Divides by zero at the step that is `bad`, and does something to what it holds in each forward."""

    def __init__(self, held, touch):
        super().__init__()
        self.inner, self.held, self.touch = nn.Linear(4, 1), held, touch

    def forward(self, x):
        self.touch(self.held)
        return self.inner(x) / (x[0, 0] != 0)


class Config:
    def __init__(self):
        self.width, self.calls = 3, [0]


def count(config):
    config.calls[0] += 1
    config.width += 1


def failing(held, touch):
    torch.manual_seed(0)
    model = Holds(held, touch)
    with NeuralDbg(model) as dbg:
        train(model, 2)
        train(model, 1, given=torch.zeros(16, 4))
    return [n for n in notes(dbg) if n.startswith("replay")], dbg.diagnose()


@pytest.mark.parametrize(
    ("held", "touch", "seen"),
    [
        (Config(), count, lambda c: (c.width, c.calls)),
        ({"a": [1]}, lambda h: h["a"].append(2), lambda h: h["a"]),
        (np.zeros(2), lambda a: a.__iadd__(1), lambda a: a.tolist()),
        (Counter("ab"), lambda c: c.update("a"), lambda c: dict(c)),
        (nn.functional.relu, lambda f: f(torch.ones(1)), lambda f: f.__name__),
    ],
    ids=["object", "nested", "array", "counter", "function"],
)
def test_what_a_module_holds_in_plain_values_is_put_back_after_the_replay(held, touch, seen):
    alone = copy.deepcopy(held)
    for _ in range(3):
        touch(alone)
    said, diagnosis = failing(held, touch)
    assert (said, seen(held)) == ([], seen(alone))
    assert [e.metadata.get("operator") for e in diagnosis.events if "operator" in e.metadata]


@pytest.mark.parametrize(
    ("held", "touch"),
    [
        (torch.Generator(), lambda g: torch.rand(1, generator=g)),
        (np.random.default_rng(0), lambda g: g.random()),
        ([np.random.RandomState(0)], lambda g: g[0].random()),
        (random.Random(0), lambda g: g.random()),
        (itertools.count(), next),
        (queue.Queue(), lambda q: q.put(1)),
        ({"lock": threading.Lock()}, lambda d: d["lock"].locked()),
        ([nn.BatchNorm1d(4)], lambda m: None),
    ],
    ids=["torch", "numpy", "nested", "python", "iterator", "queue", "lock", "module"],
)
def test_where_a_module_holds_what_cannot_be_put_back_there_is_no_replay(held, touch):
    calls = []
    said, _ = failing(held, lambda h: (touch(h), calls.append(1)))
    assert len(said) == 1
    assert "the model holds 'held'" in said[0]
    assert len(calls) == 3


# -- what the public calls refuse -------------------------------------------------------------------------------------


class Refuses:
    def __float__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param(10**400, "int", id="too large"),
        pytest.param(10**5000, "int", id="too long to print"),
        (1j, "complex"),
        ([[1.0]], "list"),
        (Refuses(), "Refuses"),
        (torch.tensor(1j), "complex64"),
        (torch.ones((), device="meta"), "meta"),
    ],
)
def test_a_loss_that_is_no_number_is_refused_with_its_type(value, kind):
    with NeuralDbg(net()) as dbg:
        with pytest.raises(TypeError, match=kind):
            dbg.record_loss(value)
        dbg.record_loss(torch.tensor([0.5]))
    assert not ended(dbg)


def test_steps_count_from_zero():
    with NeuralDbg(net()) as dbg:
        dbg.step = 0
        with pytest.raises(ValueError, match="from 0, got int -1"):
            dbg.step = -1
        assert dbg.step == 0


@pytest.mark.parametrize("given", [(), ({},)])
def test_a_session_without_a_model_is_refused_with_a_word_on_what_to_pass(given):
    with pytest.raises(TypeError, match=r"pass NeuralDbg\(model\)"):
        NeuralDbg(*given)


# -- MLflow's runs end ------------------------------------------------------------------------------------------------
