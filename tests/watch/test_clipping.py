"""What becomes of gradients between backward and the optimizer's step: how often they are written to, and their size.

And what is said of trainings that clip: the near misses, then a clip that misses a part of the model.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from neuraldbg import NeuralDbg
from neuraldbg.watch import parameters

STEPS = 6


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def sgd(model, **more):
    return torch.optim.SGD(model.parameters(), **{"lr": 1e-3, **more})


def loss_of(model):
    return (10 * model(torch.randn(6, 4))).square().mean()


def train(recorded, change, make=sgd, model=None):
    """The records of a training whose gradients `change` changes before each step, and their RMS as they were used."""
    model = model or net()
    dbg, records = recorded(model)
    optimizer, used = make(model), []
    with dbg:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(model).backward()
            change(model)
            used.append([p.grad.double().norm().item() / p.numel() ** 0.5 for p in model.parameters()])
            optimizer.step()
    assert len(records) == STEPS
    return records, used


def writes(records):
    return [[p.writes for p in r.parameters.values()] for r in records]


def measured(records):
    return [[p.used for p in r.parameters.values()] for r in records]


NOTHING = [[None] * 4] * STEPS


# -- what is recorded -------------------------------------------------------------------------------------------------


def test_gradients_that_are_left_alone_are_not_measured_again(recorded):
    records, _ = train(recorded, lambda model: None)
    assert writes(records) == [[0] * 4] * STEPS
    assert measured(records) == NOTHING


def test_nor_are_those_that_are_all_clipped(recorded):
    records, _ = train(recorded, lambda model: clip_grad_norm_(model.parameters(), 0.1))
    assert writes(records) == [[1] * 4] * STEPS
    assert measured(records) == NOTHING


def test_nor_are_those_that_are_all_clipped_by_value(recorded):
    records, _ = train(recorded, lambda model: clip_grad_value_(model.parameters(), 0.1))
    assert len({tuple(w) for w in writes(records)}) == 1 and measured(records) == NOTHING


def test_a_clip_for_each_layer_writes_to_all_alike(recorded):
    def change(model):
        clip_grad_norm_(model[0].parameters(), 0.1)
        clip_grad_norm_(model[2].parameters(), 5.0)

    records, _ = train(recorded, change)
    assert writes(records) == [[1] * 4] * STEPS
    assert measured(records) == NOTHING


def test_an_average_by_hand_that_makes_new_tensors_writes_to_all_alike(recorded):
    def change(model):
        for p in model.parameters():
            p.grad = p.grad / 2

    records, _ = train(recorded, change)
    assert writes(records) == [[1] * 4] * STEPS
    assert measured(records) == NOTHING


def test_an_optimizer_that_writes_to_the_gradients_writes_to_all_alike(recorded):
    """SGD with Nesterov momentum over lists of tensors adds its momentum to the gradients themselves."""
    records, _ = train(recorded, lambda m: None, lambda m: sgd(m, momentum=0.9, nesterov=True, foreach=True))
    assert max(writes(records)[-1]) > 0
    assert measured(records) == NOTHING


def test_norms_are_taken_once_where_a_part_is_clipped_and_never_where_none_is(recorded, monkeypatch):
    counted = []
    norms = parameters.norms
    monkeypatch.setattr(parameters, "norms", lambda given: counted.append(len(given)) or norms(given))
    train(recorded, lambda model: clip_grad_norm_(model.parameters(), 0.1))
    whole = len(counted)
    counted.clear()
    train(recorded, lambda model: clip_grad_norm_(model[0].parameters(), 0.1))
    assert len(counted) == whole + STEPS


def test_a_clip_of_one_layer_gives_the_gradients_of_all_as_they_were_used(recorded):
    records, used = train(recorded, lambda model: clip_grad_norm_(model[0].parameters(), 0.1))
    assert writes(records) == [[1, 1, 0, 0]] * STEPS
    for found, by_hand in zip(measured(records), used, strict=True):
        assert found == pytest.approx(by_hand, rel=1e-4)
    last = list(records[-1].parameters.values())
    assert last[0].used < 0.5 * last[0].gradient
    assert last[2].used == last[2].gradient


def test_a_new_tensor_in_the_place_of_a_gradient_is_a_write_as_well(recorded):
    def change(model):
        model[0].weight.grad = model[0].weight.grad * 0.1

    records, used = train(recorded, change)
    assert writes(records) == [[1, 0, 0, 0]] * STEPS
    assert measured(records)[-1] == pytest.approx(used[-1], rel=1e-4)


def test_a_clip_in_the_optimizers_own_hook_is_seen(recorded):
    def make(model):
        optimizer = sgd(model)

        def clip(*_):
            clip_grad_norm_(model[0].parameters(), 0.1)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    records, _ = train(recorded, lambda model: None, make)
    assert writes(records) == [[1, 1, 0, 0]] * STEPS


def test_clipping_each_micro_batch_counts_the_last(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = sgd(model)
    with dbg:
        for k in range(STEPS * 2):
            loss_of(model).backward()
            clip_grad_norm_(model[0].parameters(), 0.1)
            if k % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert writes(records) == [[1, 1, 0, 0]] * STEPS


def test_of_two_optimizers_each_is_looked_at_by_itself(recorded):
    """A game of which one player is clipped: no optimizer sees two kinds of gradients."""
    gen, disc = nn.Linear(2, 2), nn.Linear(2, 1)
    dbg, records = recorded({"gen": gen, "disc": disc})
    opt_g, opt_d = torch.optim.SGD(gen.parameters(), lr=0.01), torch.optim.SGD(disc.parameters(), lr=0.01)
    with dbg:
        for _ in range(STEPS):
            fake = gen(torch.randn(8, 2))
            opt_d.zero_grad()
            (F.softplus(disc(fake.detach())) + F.softplus(-disc(torch.randn(8, 2)))).mean().backward()
            clip_grad_norm_(disc.parameters(), 1e-3)
            opt_d.step()
            opt_g.zero_grad()
            F.softplus(-disc(fake)).mean().backward()
            opt_g.step()
    assert writes(records)[-1] == [0, 0, 1, 1]
    assert measured(records)[-1] == [None] * 4


def test_a_sparse_gradient_that_no_clip_can_take_is_left_out(recorded):
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 1))
    dbg, records = recorded(model)
    optimizer = sgd(model)
    with dbg:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randint(0, 10, (6, 2))).square().mean().backward()
            clip_grad_norm_(model[2:].parameters(), 1e-3)
            optimizer.step()
    assert writes(records) == [[0, 1, 1, 1, 1]] * STEPS
    assert measured(records) == [[None] * 5] * STEPS


@pytest.mark.parametrize("unscales", [True, False], ids=["before the clip", "in the scaler's step"])
def test_a_scaler_that_unscales_writes_to_all_and_the_sizes_are_unscaled(recorded, unscales):
    model = net()
    dbg, records = recorded(model)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**12)
    with dbg:
        for _ in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            if unscales:
                scaler.unscale_(optimizer)
                clip_grad_norm_(model[0].parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
    first, head = writes(records)[-1][0], writes(records)[-1][3]
    last = list(records[-1].parameters.values())
    if unscales:
        assert first == head + 1
        assert last[2].used == pytest.approx(last[2].gradient, rel=1e-5)
        assert (8 * 4 * last[0].used ** 2 + 8 * last[1].used ** 2) ** 0.5 == pytest.approx(0.1, rel=1e-3)
    else:
        assert first == head and last[0].used is None


def test_watching_a_clip_of_a_part_changes_no_bit():
    def weights(watch):
        torch.manual_seed(0)
        model = net()
        optimizer = sgd(model, lr=0.01, momentum=0.9)
        with watch(model):
            for _ in range(20):
                optimizer.zero_grad()
                loss_of(model).backward()
                clip_grad_norm_(model[0].parameters(), 0.1)
                optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    watched, bare = weights(NeuralDbg), weights(contextlib.nullcontext)
    assert all(torch.equal(a, b) for a, b in zip(watched, bare, strict=True))


# -- what is said -----------------------------------------------------------------------------------------------------


def teacher(rows):
    """Squares of a linear map: targets of a long tail, whose gradients come in bursts."""
    x = torch.randn(rows, 6)
    return x, (x @ torch.arange(6.0) / 6).square().unsqueeze(1)


def said(clips, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.3, momentum=0.9), before=lambda k, model, opt: None):
    """The diagnosis of a small regression at a rate that only clipping makes possible."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = optimizer(model.parameters())
    with NeuralDbg(model) as dbg:
        for k in range(120):
            before(k, model, optimizer)
            x, y = teacher(32)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            clips(model, optimizer)
            optimizer.step()
            dbg.record_loss(loss.item())
    return dbg.diagnose()


def causes(diagnosis):
    return {h.cause for h in (*diagnosis.hypotheses, *diagnosis.notes)}


def all_of_it(model, optimizer):
    clip_grad_norm_(model.parameters(), 0.1)


def by_layer(model, optimizer):
    for layer, limit in ((model[0], 0.05), (model[2], 0.05), (model[4], 0.1)):
        clip_grad_norm_(layer.parameters(), limit)


def by_value(model, optimizer):
    clip_grad_value_(model.parameters(), 0.02)


def by_value_in_part(model, optimizer):
    clip_grad_norm_(model.parameters(), 0.1)
    clip_grad_value_(model[0].parameters(), 0.005)


def slowed_in_part(model, optimizer):
    """A pretrained part that shall move less."""
    clip_grad_norm_(model.parameters(), 0.1)
    for p in model[0].parameters():
        p.grad.mul_(0.1)


def never_binding(model, optimizer):
    clip_grad_norm_(model.parameters(), 0.1)
    clip_grad_norm_(model[0].parameters(), 1e6)


@pytest.mark.parametrize("clips", [all_of_it, by_layer, by_value, by_value_in_part, slowed_in_part, never_binding])
def test_a_clip_that_leaves_nothing_out_is_not_blamed(clips):
    diagnosis = said(clips)
    assert "clipping_misses_parameters" not in causes(diagnosis)


def test_a_clip_of_all_makes_this_training_healthy():
    """So that the one below fails of its clip, and of nothing else."""
    assert str(said(all_of_it).verdict) == "healthy"


def test_a_clip_that_misses_the_head_is_the_cause():
    diagnosis = said(lambda model, optimizer: clip_grad_norm_(model[:4].parameters(), 0.1))
    assert str(diagnosis.verdict) == "failed"
    assert diagnosis.top.cause == "clipping_misses_parameters"
    assert (diagnosis.top.layer_name, diagnosis.top.step) == ("4", 0)


def test_a_list_made_before_a_layer_was_replaced_misses_the_new_one():
    listed = []

    def before(k, model, optimizer):
        if k == 0:
            listed.extend(model.parameters())
        if k == 60:
            model[4] = nn.Linear(32, 1)
            optimizer.param_groups[0]["params"] = list(model.parameters())

    diagnosis = said(lambda model, optimizer: clip_grad_norm_(listed, 0.1), before=before)
    assert str(diagnosis.verdict) == "failed"
    assert diagnosis.top.cause == "clipping_misses_parameters"
    assert (diagnosis.top.layer_name, diagnosis.top.step) == ("4", 60)


def test_under_adam_a_part_that_is_left_out_is_a_note():
    diagnosis = said(
        lambda model, optimizer: clip_grad_norm_(model[:4].parameters(), 0.1),
        lambda ps: torch.optim.Adam(ps, lr=3e-3),
    )
    assert str(diagnosis.verdict) == "warning"
    assert [n.cause for n in diagnosis.notes] == ["clipping_misses_parameters"]
