"""The ways of training that break hooks: each row of the table in docs/design/patterns.md that runs on one CPU."""

from __future__ import annotations

import copy
import io
import threading
import warnings

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from neuraldbg import NeuralDbg
from tests.watch.patterns import Plain, batch, close, close_dict, gradients, net, rms, train
from tests.watch.sessions import hooks_of

# -- torch.compile ----------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    """(model, the compiled call) with fresh counters."""
    torch._dynamo.reset()
    counters.clear()
    model = net()
    yield model, torch.compile(model, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


def breaks_and_recompiles():
    return sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"] - 1


def test_row_01_compile_hooks_before_the_first_call(compiled, recorded):
    model, called = compiled
    dbg, records = recorded(model, cadence=1)
    with dbg:
        train(model, called=called)
    assert {"0", "1", "2"} <= set(records[-1].layers)


def test_row_02_compile_hooks_after_the_first_call(compiled):
    model, called = compiled
    called(batch())
    with NeuralDbg(called) as dbg:
        train(model, called=called)
    notes = dbg.diagnose().facts.coverage.notes
    assert any("before the first call" in n for n in notes)
    assert breaks_and_recompiles() == (0, 0)


def test_row_03_removing_hooks_after_compile(compiled):
    model, called = compiled
    with NeuralDbg(called):
        train(model, called=called, steps=2)
    assert hooks_of(model) == 0
    train(model, called=called, steps=2)
    assert counters["graph_break"] == {}


def test_row_04_to_08_hooks_in_a_graph_write_a_buffer_without_break_recompile_or_tensor_hook(compiled, recorded):
    model, called = compiled
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called=called, steps=10)
        assert called(batch())._backward_hooks is None
    assert breaks_and_recompiles() == (0, 0)
    assert len({r.layers["0"].rms for r in records[:10]}) == 10


def test_row_09_parameter_hooks_under_compile_fire_also_when_added_late(compiled, recorded):
    model, called = compiled
    called(batch())
    dbg, records = recorded(called, cadence=1)
    with dbg:
        by_hand = train(model, called=called)
    assert [gradients(r) for r in records] == [close_dict(g) for g in by_hand]


def test_row_10_no_global_module_hook_is_used():
    with NeuralDbg(net()):
        assert not torch_module._has_any_global_hook()


# -- in-place, recomputation, wrappers --------------------------------------------------------------------------------


def test_row_13_inplace_activation(recorded):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
    dbg, records = recorded(model)
    with dbg:
        train(model)
    assert records[0].layers["1"].low == 0


def test_row_14_in_place_op_after_the_hook(recorded):
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(inplace=True), nn.Linear(64, 1))
    dbg, records = recorded(model)
    with dbg:
        train(model)
    assert all(r.layers["0"].low < 0 for r in records)


@pytest.mark.parametrize("reentrant", [True, False])
def test_row_15_16_checkpoint_recomputation_is_not_training(reentrant, recorded):
    body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(m, x):
        return m.head(checkpoint(m.body, m.first(x), use_reentrant=reentrant))

    results = []
    for watched in (False, True):
        torch.manual_seed(1)
        model = Plain(forward, first=nn.Linear(4, 4), body=copy.deepcopy(body), head=nn.Linear(4, 1))
        if not watched:
            by_hand = train(model)
        else:
            dbg, records = recorded(model)
            with dbg:
                assert train(model) == by_hand
        results.append([p.detach() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert [r.step for r in records] == [0, 1, 2, 3]
    assert [r.backwards for r in records] == [1] * 4
    assert [gradients(r) for r in records] == [close_dict(g) for g in by_hand]
    assert all(len(r.inputs) == 1 for r in records)


def test_row_17_a_parallel_wrapper_is_looked_through(recorded):
    model = net()
    wrapped = nn.DataParallel(model)
    dbg, records = recorded(wrapped)
    with dbg:
        train(model, called=wrapped)
    assert set(records[0].layers) == {"0", "1", "2"}
    assert set(records[0].parameters) == {n for n, _ in model.named_parameters()}


# -- steps ------------------------------------------------------------------------------------------------------------


def test_row_21_accumulation_is_one_step_of_running_sums(recorded):
    model = net()
    dbg, records = recorded(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    by_hand = []
    with dbg:
        for _ in range(3):
            for _ in range(4):
                (model(batch()).square().mean() / 4).backward()
            by_hand.append({n: rms(p.grad) for n, p in model.named_parameters()})
            opt.step()
            opt.zero_grad()
    assert [r.step for r in records] == [0, 1, 2]
    assert [gradients(r) for r in records] == [close_dict(g) for g in by_hand]


def test_row_22_grad_scaler_values_are_unscaled_and_an_overflow_is_no_failure(recorded):
    model = net()
    dbg, records = recorded(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    x = batch()
    with dbg:
        for _ in range(20):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    skipped = [r.skipped for r in records]
    assert skipped[0] and not skipped[-1]
    norms = [r.gradient_norm for r in records if not r.skipped]
    assert norms == pytest.approx([norms[0]] * len(norms), rel=0.01)
    assert close([r.loss for r in records], [loss.item()] * 20)
    assert str(dbg.diagnose().verdict) != "failed", dbg.diagnose()


def test_row_23_clipping_comes_after_what_is_read(recorded):
    model = net()
    dbg, records = recorded(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.0)
    with dbg:
        for _ in range(3):
            opt.zero_grad()
            (model(batch()).square().mean() * 1000).backward()
            total = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            opt.step()
    assert close(records[-1].gradient_norm, total.item())


def test_row_24_several_optimizers_are_told_apart_by_what_they_hold():
    gen, disc = nn.Linear(2, 2), nn.Linear(2, 1)
    opts = torch.optim.SGD(gen.parameters(), lr=0.01), torch.optim.Adam(disc.parameters(), lr=0.01)
    with NeuralDbg({"gen": gen, "disc": disc}) as dbg:
        for _ in range(4):
            for o in opts:
                o.zero_grad()
                F.softplus(disc(gen(torch.randn(8, 2)))).mean().backward()
                o.step()
    facts = dbg.diagnose().facts
    assert {p.name: p.owner for p in facts.parameters} == {
        "gen.weight": 0,
        "gen.bias": 0,
        "disc.weight": 1,
        "disc.bias": 1,
    }
    assert dbg.diagnose().steps == 4


def test_row_25_many_forwards_per_step(recorded):
    model = Plain(None, cell=nn.LSTMCell(4, 4), out=nn.Linear(4, 1))

    def forward(m, x):
        state = None
        for _ in range(50):
            state = m.cell(x, state)
        return m.out(state[0])

    model.run = forward
    dbg, records = recorded(model)
    with dbg:
        train(model)
    assert [r.step for r in records] == [0, 1, 2, 3]
    assert records[0].layers["cell"].rms > 0


# -- around the training ----------------------------------------------------------------------------------------------


def test_row_34_eval_interleaved_and_a_sanity_check_are_not_training(recorded):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    dbg, records = recorded(model)
    with dbg:
        model.eval()
        with torch.no_grad():
            model(1e6 * batch())  # the sanity check of a framework, before any training
        model(1e6 * batch())  # with gradients carelessly left on
        model.train()
        for _ in range(3):
            train(model, 2)
            model.eval()
            with torch.inference_mode():
                model(1e6 * batch())
            model.train()
    assert len(records) == 6
    assert all(s.training and s.high < 100 for r in records for s in r.layers.values())
    assert all(x.far < 100 for r in records for x in r.inputs)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_row_35_exception_in_forward_names_the_module(error):
    def forward(m, x):
        if m.armed:
            raise error("mine")
        return x

    model = nn.Sequential(nn.Linear(4, 8), Plain(forward), nn.Linear(8, 1))
    model[1].armed = False
    dbg = NeuralDbg(model)
    with pytest.raises(error, match="mine"), dbg:
        train(model)
        model[1].armed = True
        train(model)
    assert dbg.diagnose().facts.exception_layer == "1"
    assert dbg.diagnose().steps >= 4


def test_row_36_a_notebook_cell_that_runs_again_leaves_one_set_of_hooks():
    model, kept = net(), []
    counts = []
    for _ in range(3):
        dbg = NeuralDbg(model)
        dbg.__enter__()
        train(model, 2)
        counts.append(hooks_of(model))
        kept.append(dbg)
    assert len(set(counts)) == 1
    kept[-1].detach()
    assert hooks_of(model) == 0
    assert [d.diagnose().steps for d in kept] == [2, 2, 2]


def test_row_37_deepcopy_and_ema_are_silent():
    model = net()
    with NeuralDbg(model) as dbg:
        twin = copy.deepcopy(model)
        train(twin, 3)
        assert dbg.step == 0
        train(model, 2)
    assert dbg.diagnose().steps == 2


def test_row_38_torch_save_of_a_whole_model():
    model, file = net(), io.BytesIO()
    with NeuralDbg(model):
        train(model, 2)
        torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = batch()
    assert torch.equal(loaded(x), model(x))


class Encoded(Dataset[torch.Tensor]):
    """Its samples are made by the model that is watched."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 8

    def __getitem__(self, k):
        with torch.no_grad():
            return self.model[0](torch.full((4,), float(k)))[:4].clone()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_row_40_data_loader_workers_that_use_the_model(workers):
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for x in DataLoader(
            Encoded(model), batch_size=4, num_workers=workers, multiprocessing_context="fork" if workers else None
        ):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
    assert dbg.diagnose().steps == 2


def test_row_41_a_loop_in_a_thread():
    model, failures = net(), []

    def loop():
        try:
            train(model, 5)
        except BaseException as error:
            failures.append(error)

    with NeuralDbg(model) as dbg:
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
    assert failures == []
    assert dbg.diagnose().steps == 5


def test_row_42_vmap_and_functional_call(recorded):
    model = net()
    dbg, records = recorded(model)
    state = {n: p.detach() for n, p in model.named_parameters()}
    with dbg:
        train(model, 2)

        def loss(state, x):
            return torch.func.functional_call(model, state, (x,)).square().mean()

        per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(state, batch())
        assert per_sample["0.weight"].shape == (6, 8, 4)
        train(model, 2)
    assert records[-1].step >= 3


def test_row_43_trace_and_export_in_a_pause():
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, 2)
        with dbg.paused(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            traced = torch.jit.trace(model, batch())
            scripted = torch.jit.script(model)
            exported = torch.export.export(model, (batch(),))
        x = batch()
        expected = model(x)
        assert all(torch.allclose(m(x), expected) for m in (traced, scripted, exported.module()))
        train(model, 2)
    assert dbg.diagnose().steps == 4


def test_row_44_no_hook_returns_a_value():
    bare = net()
    x = batch()
    expected = bare(x)
    with NeuralDbg(bare):
        assert torch.equal(bare(x), expected)
