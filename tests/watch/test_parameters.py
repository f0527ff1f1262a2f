"""Gradients, updates and who holds what, against numbers computed by hand."""

from __future__ import annotations

import gc
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg.watch.parameters import SAMPLE


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model):
    return model(torch.randn(6, 4)).square().mean()


def carried(records):
    """By step: whether any parameter's gradient contained one that was used before."""
    return [any(p.carried for p in r.parameters.values()) for r in records]


def rms(x):
    return x.double().square().mean().sqrt().item()


def close(a, b):
    return a == pytest.approx(b, rel=1e-5)


# -- carried gradients ------------------------------------------------------------------------------------------------


def by_zeros(optimizer):
    optimizer.zero_grad(set_to_none=False)


def by_none(optimizer):
    optimizer.zero_grad(set_to_none=True)


def by_data(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.data.zero_()


def by_hand(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def by_new_zeros(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("clear", [by_zeros, by_none, by_data, by_hand, by_new_zeros])
def test_gradients_that_are_cleared_in_any_way_are_not_carried(clear, when, recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for _ in range(5):
            if when == "before":
                clear(optimizer)
            loss_of(model).backward()
            optimizer.step()
            if when == "after":
                clear(optimizer)
    assert carried(records) == [False] * 5


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_accumulation_is_no_carry(micro_batches, recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for k in range(5 * micro_batches):
            (loss_of(model) / micro_batches).backward()
            if (k + 1) % micro_batches == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert carried(records) == [False] * 5
    assert [r.backwards for r in records] == [micro_batches] * 5


def test_a_generators_backward_that_fills_the_discriminators_buffers_is_no_carry(recorded):
    gen, disc = nn.Linear(2, 2), nn.Linear(2, 1)
    dbg, records = recorded({"gen": gen, "disc": disc})
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.01), torch.optim.SGD(disc.parameters(), lr=0.01)
    with dbg:
        for _ in range(6):
            fake = gen(torch.randn(8, 2))
            opt_d.zero_grad()
            (F.softplus(disc(fake.detach())) + F.softplus(-disc(torch.randn(8, 2)))).mean().backward()
            opt_d.step()
            opt_g.zero_grad()
            F.softplus(-disc(fake)).mean().backward()
            opt_g.step()
    assert not any(carried(records))


def test_two_backward_passes_of_one_step_are_no_carry(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            loss_of(model).backward()
            optimizer.step()
    assert carried(records) == [False] * 4


def test_a_gradient_that_is_used_a_second_time_is_carried_from_the_second_step_on(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for _ in range(5):
            loss_of(model).backward()
            optimizer.step()
    assert carried(records) == [False, True, True, True, True]


def test_a_single_forgotten_clearing_is_carried_once(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for k in range(6):
            if k != 3:
                optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    assert carried(records) == [False, False, False, True, False, False]


def test_of_two_optimizers_only_the_one_that_is_not_cleared_carries(recorded):
    model = net()
    dbg, records = recorded(model)
    first = torch.optim.SGD(model[0].parameters(), lr=0.01)
    second = torch.optim.SGD(model[2].parameters(), lr=0.01)
    with dbg:
        for _ in range(4):
            first.zero_grad()
            loss_of(model).backward()
            first.step()
            second.step()
    last = records[-1].parameters
    assert {name for name, p in last.items() if p.carried} == {"2.weight", "2.bias"}


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_gradients_are_those_before_clipping(clip, recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    by_hand, norms = [], []
    with dbg:
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model).backward()
            by_hand.append({n: rms(p.grad) for n, p in model.named_parameters()})
            norms.append(math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters())))
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    for record, gradients, norm in zip(records, by_hand, norms, strict=True):
        assert close({n: p.gradient for n, p in record.parameters.items()}, gradients)
        assert close(record.gradient_norm, norm)


def test_gradients_under_a_scaler_are_unscaled_and_a_skipped_step_is_told(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    norms = []
    with dbg:
        for k in range(4):
            optimizer.zero_grad()
            loss = loss_of(model) * (math.inf if k == 2 else 1.0)
            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            norms.append(math.sqrt(sum((p.grad / scale).square().sum().item() for p in model.parameters())))
            scaler.step(optimizer)
            scaler.update()
    assert [r.skipped for r in records] == [False, False, True, False]
    assert [r.loss_scale for r in records] == [2.0**12] * 3 + [2.0**11]
    assert close([r.gradient_norm for r in records[:2]], norms[:2])
    assert close(records[3].gradient_norm, norms[3])
    assert [r.first_bad for r in records][:2] == [None, None]


def test_gradients_that_the_user_unscales_before_clipping_are_not_unscaled_twice(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    norms = []
    with dbg:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(optimizer)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e-3).item())
            scaler.step(optimizer)
            scaler.update()
    assert close([r.gradient_norm for r in records], norms)


def test_each_optimizer_has_the_gradient_of_its_own_parameters(recorded):
    model = net()
    dbg, records = recorded(model)
    first = torch.optim.SGD(model[0].parameters(), lr=0.01)
    second = torch.optim.SGD(model[2].parameters(), lr=0.01)
    by_hand = []
    with dbg:
        for _ in range(4):
            model.zero_grad()
            loss_of(model).backward()
            by_hand.append(
                tuple(rms(torch.cat([p.grad.flatten() for p in m.parameters()])) for m in (model[0], model[2]))
            )
            first.step()
            second.step()
    assert [r.step for r in records] == [0, 1, 2, 3]
    for record, gradients in zip(records, by_hand, strict=True):
        assert close(record.group_gradients, gradients)


def test_a_parameter_without_a_gradient_has_none_and_not_zero(recorded):
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "unused": nn.Linear(4, 1)})
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model["used"]).backward()
            optimizer.step()
    assert records[-1].parameters["unused.weight"].gradient is None
    assert records[-1].parameters["used.weight"].gradient > 0


def test_the_norm_of_half_precision_gradients_does_not_overflow(recorded):
    model = nn.Linear(64, 64, bias=False).half()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with dbg:
        for _ in range(2):
            optimizer.zero_grad()
            (model(torch.ones(2, 64).half()).sum() * 3000.0).backward()
            optimizer.step()
    assert close(records[-1].gradient_norm, 6000.0 * 64)
    assert records[-1].first_bad is None


def test_sparse_gradients_are_measured(recorded):
    model = nn.Sequential(nn.Embedding(20, 3, sparse=True), nn.Linear(3, 1))
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    by_hand = []
    with dbg:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.tensor([1, 1, 5])).sum().backward()
            by_hand.append(rms(model[0].weight.grad.to_dense()))
            optimizer.step()
    assert close([r.parameters["0.weight"].gradient for r in records], by_hand)


def test_the_direction_of_gradients_is_compared_with_the_step_before(recorded):
    model = nn.Linear(4, 4, bias=False)
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.randn(3, 4)
    with dbg:
        for sign in (1.0, 1.0, -1.0, -2.0):
            optimizer.zero_grad()
            (sign * model(x).sum()).backward()
            optimizer.step()
    assert records[0].cosine is None
    assert [round(r.cosine, 4) for r in records[1:]] == [1.0, -1.0, 1.0]


def test_large_gradients_have_a_direction_and_those_that_are_no_numbers_have_none(recorded):
    model = nn.Linear(4, 4, bias=False)
    dbg, records = recorded(model)
    x = torch.rand(3, 4) + 0.5
    with dbg:
        for factor in (1.0, 1e25, -1e30, math.nan, 1.0):
            model.zero_grad()
            (factor * model(x).sum()).backward()
            dbg.record_loss(1.0)
    assert [r.cosine and round(r.cosine, 4) for r in records] == [None, 1.0, -1.0, None, None]


# -- updates ----------------------------------------------------------------------------------------------------------


def test_updates_are_relative_to_the_new_weights(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    by_hand = []
    with dbg:
        for _ in range(3):
            before = [p.detach().clone() for p in model.parameters()]
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
            by_hand.append([rms(p - q) / rms(p) for p, q in zip(model.parameters(), before, strict=True)])
        weights = {n: rms(p) for n, p in model.named_parameters()}
    for record, ratios in zip(records, by_hand, strict=True):
        assert [p.update for p in record.parameters.values()] == pytest.approx(ratios, rel=1e-4)
        assert all(p.moved for p in record.parameters.values())
    assert close({n: p.weight for n, p in records[-1].parameters.items()}, weights)


def test_a_tensor_of_many_elements_is_read_on_a_sample(recorded):
    model = nn.Linear(300, 300, bias=False)
    assert model.weight.numel() > SAMPLE
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for _ in range(2):
            before = model.weight.detach().clone()
            optimizer.zero_grad()
            model(torch.randn(8, 300)).square().mean().backward()
            optimizer.step()
            by_hand = rms(model.weight - before) / rms(model.weight)
        weight = rms(model.weight)
    last = records[-1].parameters["weight"]
    assert last.update == pytest.approx(by_hand, rel=0.05)
    assert last.weight == pytest.approx(weight, rel=0.05)


def test_a_parameter_that_no_optimizer_holds_gets_gradient_and_never_moves(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with dbg:
        for _ in range(10):
            model.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    assert all(r.parameters["0.weight"].moved is False and r.parameters["0.weight"].gradient for r in records)
    assert all(r.parameters["2.weight"].moved for r in records)
    facts = {p.name: p for p in dbg.diagnose().facts.parameters}
    assert facts["0.weight"].owner is None
    assert facts["2.weight"].owner == 0
    assert [e.layer_name for e in dbg.events if e.symptom == "stuck_parameter"] == ["0"]


def test_a_frozen_parameter_neither_moves_nor_is_said_to_stand_still(recorded):
    model = net()
    model[0].requires_grad_(False)
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for _ in range(10):
            model.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    assert {r.parameters["0.weight"].moved for r in records} == {None}
    assert not [e for e in dbg.events if e.symptom == "stuck_parameter"]


def test_a_weight_that_turns_non_finite_is_seen_in_its_step(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for k in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            if k == 2:
                optimizer.param_groups[0]["lr"] = math.inf
            optimizer.step()
    assert [r.parameters["2.weight"].weight_finite for r in records] == [True, True, False, False]
    assert [r.first_bad for r in records] == [None, None, ("weight after", "0"), ("weight", None)]


# -- optimizers -------------------------------------------------------------------------------------------------------


def test_the_facts_of_an_optimizer_are_its_own():
    from neuraldbg import NeuralDbg

    model = net()
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[2].parameters()}],
        lr=0.01, eps=1e-6, weight_decay=0.3, betas=(0.8, 0.99),
    )  # fmt: skip
    with NeuralDbg(model) as dbg:
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    (facts,) = dbg.diagnose().facts.optimizers
    assert (facts.kind, facts.rates, facts.parameters) == ("AdamW", (0.02, 0.01), 4)
    assert (facts.eps, facts.weight_decay, facts.momentum) == (1e-6, 0.3, 0.8)


def test_rates_are_those_that_the_step_used(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with dbg:
        for _ in range(4):
            optimizer.zero_grad()
            (loss_of(model) * 1e-3).backward()
            optimizer.step()
            schedule.step()
    assert [r.rates for r in records] == [(1.0,), (0.5,), (0.25,), (0.125,)]


def test_an_optimizer_that_holds_nothing_watched_is_none_of_ours():
    from neuraldbg import NeuralDbg

    model, other = net(), net()
    mine, theirs = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for _ in range(3):
            for m, o in ((model, mine), (other, theirs)):
                o.zero_grad()
                loss_of(m).backward()
                o.step()
    assert len(dbg.diagnose().facts.optimizers) == 1
    assert dbg.diagnose().steps == 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_new_optimizer_in_the_place_of_an_old_one_is_no_second_one(kept, recorded):
    model = net()
    dbg, records = recorded(model)
    alive = []
    with dbg:
        for rate in (0.1, 0.01):
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            if kept:
                alive.append(optimizer)
            for _ in range(3):
                optimizer.zero_grad()
                loss_of(model).backward()
                optimizer.step()
            del optimizer
            gc.collect()
    assert [r.step for r in records] == [0, 1, 2, 3, 4, 5]
    assert [max(r.rates) for r in records] == [0.1] * 3 + [0.01] * 3


def test_parameters_added_to_a_group_later_are_held_from_then_on():
    from neuraldbg import NeuralDbg

    model = net()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for k in range(4):
            if k == 2:
                optimizer.add_param_group({"params": model[0].parameters()})
            model.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    assert {p.owner for p in dbg.diagnose().facts.parameters} == {0}
