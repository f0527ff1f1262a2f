"""How often is looked: densely at first, then as told; the cheap sentinels always; and what that costs."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.report.json import to_json


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def train(model, steps, tell=None, bad=None, lr=1e-2):
    g = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses, norms = [], []
    for k in range(steps):
        x, y = torch.randn(16, 6, generator=g), torch.randint(0, 3, (16,), generator=g)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x * math.nan if k == bad else x), y)
        loss.backward()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        optimizer.step()
        if tell is not None:
            tell(loss.detach())
    return losses, norms


def sampled(records):
    return [r.step for r in records if r.sampled]


def test_all_steps_are_sampled_while_the_beginning_lasts(recorded):
    model = net()
    dbg, records = recorded(model, dense_steps=20)
    with dbg:
        train(model, 20)
    assert sampled(records) == list(range(20))


def test_the_beginning_ends_by_the_clock_too(recorded):
    model = net()
    dbg, records = recorded(model, dense_seconds=1e-9, cadence=None, dense_steps=1000, overhead_budget=1.0)
    with dbg:
        train(model, 40)
    assert len(sampled(records)) < 40


def test_after_the_beginning_steps_are_sampled_sparsely_and_none_is_missing(recorded):
    model = net()
    dbg, records = recorded(model, dense_steps=5, sparse_every=7, overhead_budget=1.0)
    with dbg:
        train(model, 60)
    assert sampled(records)[:5] == [0, 1, 2, 3, 4]
    assert len(sampled(records)) < 30
    assert [r.step for r in records] == list(range(60))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_fixed_cadence_samples_every_kth_step_from_the_start(k, recorded):
    model = net()
    dbg, records = recorded(model, cadence=k)
    with dbg:
        train(model, 21)
    assert sampled(records) == list(range(0, 21, k))
    coverage = dbg.diagnose().facts.coverage
    assert (coverage.steps, coverage.steps_sampled) == (21, len(range(0, 21, k)))


@pytest.mark.parametrize("told", [True, False])
def test_steps_that_are_not_sampled_still_give_loss_and_gradient_norm(told, recorded):
    model = net()
    dbg, records = recorded(model, cadence=4)
    with dbg:
        losses, norms = train(model, 12, dbg.record_loss if told else None)
    assert [r.loss for r in records] == pytest.approx([v.item() for v in losses], rel=1e-6)
    assert [r.gradient_norm for r in records] == pytest.approx([v.item() for v in norms], rel=1e-5)
    assert {r.rates for r in records} == {(1e-2,)}


def test_a_loss_that_breaks_between_samples_is_seen_at_its_step(recorded):
    model = net()
    dbg, records = recorded(model, cadence=10)
    with dbg:
        train(model, 20, dbg.record_loss, bad=13)
    assert records[12].first_bad is None
    assert records[13].first_bad is not None
    (event,) = [e for e in dbg.events if e.symptom == "loss_nonfinite"]
    assert event.step == 13


@pytest.mark.parametrize("lr", [1e-2, 30.0])
def test_a_fixed_cadence_gives_the_same_diagnosis_twice(lr):
    def run():
        model = net()
        with NeuralDbg(model, cadence=3) as dbg:
            train(model, 60, dbg.record_loss, lr=lr)
        data = json.loads(to_json(dbg.diagnose()))
        assert data["facts"]["coverage"].pop("share") > 0
        data["facts"].pop("started")
        return data

    assert run() == run()


def test_the_share_of_time_that_watching_took_is_told():
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, 20)
    assert 0 < dbg.diagnose().facts.coverage.share < 1
