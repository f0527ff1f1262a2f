"""Rows 26 to 33 and 39 of docs/design/patterns.md: values, modules and parameters that are unusual or replaced."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from tests.watch.patterns import Plain, batch, close, close_dict, gradients, net, rms, train
from tests.watch.sessions import hooks_of

# -- values of all kinds ----------------------------------------------------------------------------------------------


def test_row_26_dict_and_list_outputs(recorded):
    model = Plain(lambda m, x: {"a": [m.inner(x)["y"]]}, inner=Plain(lambda m, x: {"y": m.out(x)}, out=nn.Linear(4, 1)))
    dbg, records = recorded(model)
    with dbg:
        train(model, called=lambda x: model(x)["a"][0])
    assert {"inner.out"} <= set(records[0].layers)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_row_27_nested_tensors(recorded):
    def forward(m, x):
        ragged = torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.jagged)
        return m.head(m.body(ragged).values())

    model = Plain(forward, body=nn.Linear(4, 4), head=nn.Linear(4, 1))
    dbg, records = recorded(model)
    with dbg:
        by_hand = train(model)
    assert gradients(records[-1]) == close_dict(by_hand[-1])
    assert "head" in records[0].layers


def test_row_28_lazy_modules(recorded):
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 1))
    dbg, records = recorded(model)
    by_hand = []
    with dbg:
        for k in range(4):
            loss = model(batch()).square().mean()
            if k == 0:
                opt = torch.optim.SGD(model.parameters(), lr=0.05)
            opt.zero_grad()
            loss.backward()
            by_hand.append({n: rms(p.grad) for n, p in model.named_parameters()})
            opt.step()
    assert [gradients(r) for r in records] == [close_dict(g) for g in by_hand]
    facts = dbg.diagnose().facts
    assert facts.module("0").kind == "Linear"
    assert facts.coverage.parameters == facts.coverage.parameters_seen == 4


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm], ids=["weight", "spectral"]
)
def test_row_29_parametrizations_before_and_after_attaching(norm, late, recorded):
    model = net()
    if not late:
        norm(model[0])
    dbg, records = recorded(model)
    with dbg:
        train(model, 3)
        if late:
            norm(model[0])
        by_hand = train(model, 3)
    assert len(gradients(records[-1])) == len(by_hand[-1]) == len(list(model.parameters()))
    assert sorted(gradients(records[-1]).values()) == pytest.approx(sorted(by_hand[-1].values()), rel=1e-4)
    assert set(records[-1].layers) == {"0", "1", "2"}
    assert all("parametrizations" not in m.name for m in dbg.diagnose().facts.modules)


@pytest.mark.parametrize(
    "cast",
    [
        lambda x: x.to(torch.float8_e4m3fn),
        lambda x: x.to(torch.int8),
        lambda x: x > 0,
        lambda x: torch.complex(x, x),
        lambda x: x.bfloat16(),
    ],
    ids=["float8", "int8", "bool", "complex", "bfloat16"],
)
def test_row_30_outputs_of_other_formats(cast, recorded):
    side = Plain(lambda m, x: cast(x))
    model = Plain(lambda m, x: (m.side(x), m.out(x))[1], side=side, out=nn.Linear(4, 1))
    dbg, records = recorded(model)
    with dbg:
        train(model)
    assert [r.first_bad for r in records] == [None] * 4
    assert "out" in records[0].layers


def test_row_31_fp16_norm_does_not_overflow(recorded):
    model = nn.Linear(64, 64, bias=False).half()
    dbg, records = recorded(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.0)
    with dbg:
        for _ in range(2):
            opt.zero_grad()
            (model(torch.ones(2, 64).half()).sum() * 3000).backward()
            opt.step()
    assert close(records[-1].gradient_norm, 6000.0 * 64)


def test_row_32_sparse_gradients(recorded):
    model = nn.Sequential(nn.Embedding(20, 3, sparse=True), nn.Linear(3, 1))
    dbg, records = recorded(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for _ in range(3):
            opt.zero_grad()
            model(torch.tensor([1, 1, 5])).sum().backward()
            opt.step()
    assert records[-1].parameters["0.weight"].gradient > 0
    assert math.isfinite(records[-1].gradient_norm)


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.a, self.b = base, nn.Linear(4, 2, bias=False), nn.Linear(2, 8, bias=False)
        base.requires_grad_(False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


@pytest.mark.parametrize("late", [False, True])
def test_row_33_frozen_parts_and_zero_initialised_adapters_are_no_vanishing(late, recorded):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model[2].requires_grad_(False)
    if not late:
        model[0] = Lora(model[0])
    target = torch.tensor([1.0, -1.0, 2.0, 0.5])
    dbg, records = recorded(model)
    with dbg:
        if late:
            train(model, 3, opt=torch.optim.SGD(model.parameters(), lr=0.0))
            model[0] = Lora(model[0])
        opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
        for _ in range(40):
            x = batch(32)
            opt.zero_grad()
            F.mse_loss(model(x), torch.tanh(x @ target).unsqueeze(1) * 0.3).backward()
            opt.step()
    assert gradients(records[-1]).keys() == {"0.a.weight", "0.b.weight"}
    assert {"0.base", "0.a", "0.b"} <= set(records[-1].layers)
    assert str(dbg.diagnose().verdict) in ("healthy", "warning"), dbg.diagnose()


def test_row_39_load_state_dict_that_assigns(recorded):
    model = net()
    dbg, records = recorded(model)
    with dbg:
        train(model, 3)
        model.load_state_dict({k: v.clone() for k, v in net().state_dict().items()}, assign=True)
        hooks = [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
        assert hooks == [0, 0, 0, 0]  # that is what breaks
        by_hand = train(model, 3)
    assert [gradients(r) for r in records[3:]] == [close_dict(g) for g in by_hand]
    assert all(p.moved for p in records[-1].parameters.values())
    assert {p.owner for p in dbg.diagnose().facts.parameters} == {1}
    assert hooks_of(model) == 0


def test_row_39_an_optimizer_that_still_holds_the_old_parameters_is_found_out():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        train(model, 3, opt=opt)
        model.load_state_dict({k: v.clone() for k, v in net().state_dict().items()}, assign=True)
        for _ in range(20):
            model.zero_grad()
            model(batch()).square().mean().backward()
            opt.step()
    assert {p.owner for p in dbg.diagnose().facts.parameters} == {None}
    assert [e.symptom for e in dbg.events if e.symptom in ("updates_stop", "stuck_parameter")]


def test_row_39_conversion_of_batch_norms(recorded):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    dbg, records = recorded(model)
    with dbg:
        train(model, 3)
        old = model[1]
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
        assert model[1] is not old
        model[1] = Plain(lambda m, x: F.batch_norm(x, None, None, m.w, m.b, True), w=old.weight, b=old.bias)
        by_hand = train(model, 3)
    assert dbg.diagnose().facts.module("1").kind == "Plain"
    assert len(gradients(records[-1])) == len(by_hand[-1])
    assert "1" in records[-1].layers


def test_row_39_casts_and_plain_loads_keep_what_is_watched(recorded):
    model = net()
    dbg, records = recorded(model)
    with dbg:
        train(model, 2)
        before = hooks_of(model)
        model.load_state_dict(net().state_dict())
        model.double().float()
        assert hooks_of(model) == before
        by_hand = train(model, 2)
    assert gradients(records[-1]) == close_dict(by_hand[-1])
