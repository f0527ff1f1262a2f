"""Under torch.compile: one graph, no break, no recompile, and honest words where hooks came too late.

The backends trace everything as Inductor would; only the code generation is left out.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

from neuraldbg import NeuralDbg
from neuraldbg.watch.sample import MOST, MOST_UNITS, ROWS, Sample, some_rows


@pytest.fixture(autouse=True)
def _fresh():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1)).flatten(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)

    def forward(self, x):
        return x + torch.tanh(self.body(x))


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = F.gelu(self.body(x))
        return self.head(h), h


def train(model, called, steps=10, tell=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x, y = torch.randn(12, 6, generator=g), torch.randint(0, 3, (12,), generator=g)
        optimizer.zero_grad()
        out = called(x)
        loss = F.cross_entropy(out[0] if isinstance(out, tuple) else out, y)
        loss.backward()
        optimizer.step()
        if tell is not None:
            tell(loss.item())


def graphs():
    """(graphs made, graph breaks, recompilations)."""
    return (
        counters["stats"]["unique_graphs"],
        sum(counters["graph_break"].values()),
        sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
    )


DENSE, THIRD, SPARSE = {"cadence": 1}, {"cadence": 3}, {"dense_steps": 2, "sparse_every": 2}


@pytest.mark.parametrize(
    ("make", "backend", "settings"),
    [(mlp, "aot_eager", THIRD), (Conv, "aot_eager", DENSE), (Tuple, "eager", SPARSE), (Conv, "eager", THIRD)],
)
def test_one_graph_without_a_break_or_a_recompile_over_ten_steps(make, backend, settings, recorded):
    model = make()
    called = torch.compile(model, backend=backend, fullgraph=True)
    dbg, records = recorded(called, **settings)
    with dbg:
        train(model, called, tell=dbg.record_loss)
    assert graphs() == (1, 0, 0)
    assert [r.step for r in records] == list(range(10))
    assert any(r.sampled for r in records)


@pytest.mark.parametrize("wrap", ["torch.compile", "in place"])
def test_layers_and_gradients_are_seen_inside_the_graph_as_outside(wrap, recorded):
    numbers = []
    for traced in (False, True):
        torch.manual_seed(0)
        model = mlp()
        called = model
        if traced and wrap == "torch.compile":
            called = torch.compile(model, backend="aot_eager", fullgraph=True)
        elif traced:
            model.compile(backend="aot_eager", fullgraph=True)
        dbg, records = recorded(called, cadence=1)
        with dbg:
            train(model, called, tell=dbg.record_loss)
        numbers.append([{n: (s.rms, s.low, s.high) for n, s in r.layers.items() if n} for r in records])
        assert all(p.gradient for p in records[-1].parameters.values())
    plain, traced_numbers = numbers
    assert [set(n) for n in traced_numbers] == [set("01234")] * 10
    for a, b in zip(plain, traced_numbers, strict=True):
        for name in "01234":
            assert b[name] == pytest.approx(a[name], rel=1e-4)


def test_a_norm_inside_a_graph_counts_as_run_but_its_output_is_left_to_the_compiler(recorded):
    model = Conv()
    called = torch.compile(model, backend="aot_eager", fullgraph=True)
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called)
    facts = dbg.diagnose().facts
    assert "body.1" not in records[-1].layers and {"body.0", "body.2", "head"} <= set(records[-1].layers)
    assert facts.module("body.1").order is not None
    assert any("the outputs of 1 norms and dropouts" in note for note in facts.coverage.notes)


def test_an_eager_norm_is_looked_at(recorded):
    model = Conv()
    dbg, records = recorded(model, cadence=1)
    with dbg:
        train(model, model)
    assert records[-1].layers["body.1"].rms > 0
    assert not any("norms and dropouts" in note for note in dbg.diagnose().facts.coverage.notes)


def written(out, most=MOST):
    """A sample that this output was copied into, as a graph does."""
    sample, some = Sample(), some_rows(out, most)
    sample.values[: some.shape[0]] = some
    return sample


def test_a_small_output_is_copied_whole():
    for out in (torch.randn(5, 7), torch.randn(5), torch.randn(3, 4, 7), torch.randn(2, 7, 3, 2)):
        rows, whole = written(out).read()
        units = out.reshape(-1, 1) if out.dim() == 1 else out.movedim(1, -1) if out.dim() == 4 else out
        assert whole and torch.equal(rows, units.reshape(rows.shape))


def test_of_a_large_output_rows_from_all_over_the_batch_are_copied():
    out = torch.arange(64.0)[:, None, None] + torch.arange(32.0)[:, None] / 100 + torch.zeros(64, 32, 512)
    rows, whole = written(out).read()
    samples, places = rows[:, 0].long(), (rows[:, 0] % 1 * 100).round().long()
    assert whole and rows.shape == (MOST // 512, 512)
    assert samples.tolist() == sorted(samples.tolist()) and samples.min() < 8 and samples.max() > 55
    assert len(set(places.tolist())) > 5, "one position of all sequences is the same token in each"


def test_a_spread_has_two_rows_and_a_silent_unit_many():
    rows, whole = written(torch.randn(8, 50_000)).read()
    assert rows.shape[0] == 2 and rows.shape[1] <= MOST // 2 and not whole
    assert written(torch.randn(10**5, 2)).read()[0].shape[0] == ROWS
    assert written(torch.randn(64, 512), MOST_UNITS).read()[0].shape[0] == 32


def test_a_sample_is_read_once():
    assert Sample().read() is None
    sample = written(torch.ones(3, 2))
    assert sample.read() is not None and sample.read() is None


def test_units_that_are_silent_over_several_batches_are_counted_dead(recorded):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3))
    with torch.no_grad():
        model[0].bias[:48] = -100.0
    called = torch.compile(model, backend="aot_eager", fullgraph=True)
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called, steps=14)
    assert records[0].layers["1"].dead is None, "a batch of twelve says little"
    assert records[-1].layers["1"].dead == pytest.approx(48 / 64, abs=0.05)


@pytest.mark.parametrize("picture", [False, True])
def test_batches_of_other_sizes_make_no_graph_that_a_bare_training_does_not(picture):
    made = []
    for watched in (False, True):
        torch._dynamo.reset()
        counters.clear()
        layers = [nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten()] if picture else [nn.Linear(3072, 400), nn.ReLU()]
        model = nn.Sequential(*layers, nn.LazyLinear(4))
        model(torch.zeros(1, *((3, 32, 32) if picture else (3072,))))
        called = torch.compile(model, backend="aot_eager", fullgraph=True)
        with NeuralDbg(called) if watched else contextlib.nullcontext():
            for rows in (64, 64, 48, 33, 20, 5, 2):
                x = torch.randn(rows, *((3, 32, 32) if picture else (3072,)))
                called(x).square().mean().backward()
        made.append(graphs())
    assert made[0] == made[1] and made[0][0] > 1


def test_the_coverage_says_that_the_model_is_compiled(recorded):
    model = mlp()
    dbg, _ = recorded(torch.compile(model, backend="eager"))
    with dbg:
        train(model, torch.compile(model, backend="eager"), steps=2)
    assert dbg.diagnose().facts.coverage.mode == "compiled"


def test_an_eager_model_is_said_to_be_eager_and_nothing_is_missing(recorded):
    model = mlp()
    dbg, _ = recorded(model)
    with dbg:
        train(model, model, steps=2)
    coverage = dbg.diagnose().facts.coverage
    assert (coverage.mode, coverage.notes) == ("eager", ())


def test_a_session_that_starts_after_the_first_call_says_what_it_cannot_see_and_what_to_do(recorded):
    model = mlp()
    called = torch.compile(model, backend="eager", fullgraph=True)
    train(model, called, steps=2)
    dbg, records = recorded(called)
    with dbg:
        train(model, called, steps=4)
    coverage = dbg.diagnose().facts.coverage
    assert coverage.modules_seen == 0
    assert any("compiled and called before the session" in n and "before the first call" in n for n in coverage.notes)
    assert coverage.parameters_seen == coverage.parameters
    assert len(records) == 4
    assert all(p.gradient for p in records[-1].parameters.values())


def test_leaving_the_session_leaves_a_model_that_runs(recorded):
    model = mlp()
    called = torch.compile(model, backend="aot_eager", fullgraph=True)
    dbg, _ = recorded(called)
    with dbg:
        train(model, called, steps=3)
    train(model, called, steps=3)
    assert dbg.diagnose().steps == 3
    assert sum(counters["graph_break"].values()) == 0


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_a_compiled_model_is_seen_after_a_pause_as_before(how, recorded):
    model = Conv()
    called = model
    if how == "wrapped":
        called = torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called, steps=2)
        with dbg.paused():
            torch._dynamo.reset()
        train(model, called, steps=2)
    assert [len(r.inputs) for r in records] == [1, 1, 1, 1]
    assert [set(r.layers) for r in records] == [set(records[0].layers)] * 4


def test_names_are_those_of_the_model_and_not_of_its_wrapper(recorded):
    model = mlp()
    called = torch.compile(model, backend="eager")
    dbg, records = recorded(called)
    with dbg:
        train(model, called, steps=2)
    assert set(records[0].parameters) == {n for n, _ in model.named_parameters()}


def test_the_batch_is_read_outside_the_graph(recorded):
    model = mlp()
    called = torch.compile(model, backend="eager", fullgraph=True)
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called, steps=3)
    assert [[x.rows for x in r.inputs] for r in records] == [[12]] * 3


def test_blocks_that_are_compiled_inside_a_compiled_model_are_traced_with_it(recorded):
    model = nn.Sequential(nn.Linear(6, 6), Block(), Block(), nn.Linear(6, 3))
    for k in (1, 2):
        model[k].compile(backend="eager", fullgraph=True)
    called = torch.compile(model, backend="eager", fullgraph=True)
    dbg, records = recorded(called, cadence=1)
    with dbg:
        train(model, called, steps=4)
    assert graphs() == (1, 0, 0)
    assert {"0", "1", "1.body", "2", "2.body", "3"} <= set(records[-1].layers)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's, bare too
@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_blocks_that_are_compiled_each_by_itself_are_seen_under_their_own_names(how, recorded):
    model = nn.Sequential(nn.Linear(6, 6), Block(), Block(), nn.Linear(6, 3))
    for k in (1, 2):
        if how == "wrapped":
            model[k] = torch.compile(model[k], backend="aot_eager", fullgraph=True)
        else:
            model[k].compile(backend="aot_eager", fullgraph=True)
    dbg, records = recorded(model, cadence=1)
    with dbg:
        train(model, model, steps=6)
    assert graphs() == (1, 0, 0)  # the two blocks share their code and their graph
    assert list(records[-1].layers) == ["0", "1", "2", "3"]
    assert any("block that is compiled by itself" in n for n in dbg.diagnose().facts.coverage.notes)
    assert {n for n in records[-1].parameters if n[0] == "1"} == {"1.body.weight", "1.body.bias"}
    assert [r.step for r in records] == list(range(6))


def test_a_child_that_was_compiled_by_itself_is_watched_with_its_parent(recorded):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0] = torch.compile(model[0], backend="aot_eager")
    dbg, records = recorded(model, cadence=1)
    with dbg:
        train(model, model)
    assert dbg.diagnose().steps == 10 and not any("not watched" in n for n in dbg.diagnose().facts.coverage.notes)
    assert {"0", "1", "2"} <= set(records[-1].layers) and "0.weight" in records[-1].parameters
