"""What is read of modules' outputs, and how the graph joins the modules, against numbers computed by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg.watch.forward import CALLS, WINDOW_STEPS, first_tensor
from neuraldbg.watch.measure import moments, output_row, row_entropy
from tests.watch.patterns import Plain, close, rms


@pytest.fixture
def watch(recorded):
    """Train a model for some steps on a function of the step's number; gives (diagnosis, records)."""

    def run(model, batch=lambda k: torch.randn(16, 4), steps=3, loss=None, lr=0.0):
        dbg, records = recorded(model, cadence=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        with dbg:
            for k in range(steps):
                optimizer.zero_grad()
                given = batch(k)
                out = model(*given) if isinstance(given, tuple) else model(given)
                (out.square().mean() if loss is None else loss(out)).backward()
                optimizer.step()
        return dbg.diagnose(), records

    return run


# -- one layer's numbers ----------------------------------------------------------------------------------------------


def test_level_range_and_mean_are_those_of_the_output(watch):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), torch.randn(16, 4)
    _, records = watch(model, lambda k: x)
    h = model[0](x)
    s = records[0].layers["0"]
    assert close((s.rms, s.low, s.high, s.mean), (rms(h), h.min().item(), h.max().item(), h.mean().item()))
    assert close((s.inputs_rms, s.inputs_high), (rms(x), x.abs().max().item()))
    assert close(records[0].layers["1"].inputs_rms, s.rms)
    assert s.finite and s.inputs_finite and s.training


def test_spread_and_offset_are_over_samples(watch):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), torch.randn(16, 4)
    _, records = watch(model, lambda k: x)
    h = model[0](x)
    std = h.std(0, correction=0)
    assert close(records[0].layers["0"].spread, (std.mean() / h.square().mean().sqrt()).item())
    assert close(records[0].layers["0"].offset, (h.mean(0).abs() / std).mean().item())


def test_a_batch_of_one_has_no_spread(watch):
    _, records = watch(nn.Linear(4, 2), lambda k: torch.randn(1, 4))
    assert records[0].layers[""].spread is None


def test_an_output_that_is_the_same_for_every_sample_has_no_spread_left(watch):
    _, records = watch(nn.Linear(4, 2), lambda k: torch.randn(1, 4).expand(16, 4))
    assert records[0].layers[""].spread < 1e-6


def test_moments_survive_a_large_offset():
    x = torch.randn(1000, 3) * 1e-2 + 1000.0
    std, mean = moments(x)
    assert std.tolist() == pytest.approx(x.double().std(0, correction=0).tolist(), rel=1e-2)
    assert mean.tolist() == pytest.approx(x.double().mean(0).tolist(), rel=1e-6)


@pytest.mark.parametrize(
    ("activation", "dead"),
    [(nn.ReLU(), True), (nn.ReLU(inplace=True), True), (nn.LeakyReLU(), False), (nn.GELU(), False)],
)
def test_units_that_are_silent_for_a_whole_window_are_dead_in_rectifiers_only(activation, dead, watch):
    model = nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 1))
    with torch.no_grad():
        model[0].bias[:6] = -100.0
        model[0].bias[6:] = 100.0
    _, records = watch(model, lambda k: torch.randn(32, 4), steps=WINDOW_STEPS[0] + 1)
    s = records[-1].layers["1"]
    assert (s.dead, s.never) == ((0.75, 0.75) if dead else (None, None))


def test_a_unit_that_speaks_once_in_the_window_is_alive_and_dies_a_window_later(watch):
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model[0].bias.zero_()
    steps = 4 * WINDOW_STEPS[0]
    _, records = watch(model, lambda k: torch.full((32, 1), -1.0 if k == 4 else 1.0), steps=steps)
    dead = [r.layers["1"].dead for r in records]
    window = records[-1].window
    first = 4 + window
    assert dead[window:first] == [0.0] * (first - window)
    assert dead[first + 1 :] == [0.5] * (steps - first - 1)
    assert records[-1].layers["1"].never == 0.0


@pytest.mark.parametrize(("act", "limit"), [(nn.Tanh(), 0.99), (nn.Sigmoid(), None)])
def test_saturation_is_the_share_at_the_limits(act, limit, watch):
    model = nn.Sequential(nn.Linear(4, 64), act, nn.Linear(64, 1))
    with torch.no_grad():
        model[0].weight.mul_(20)
    x = torch.randn(64, 4)
    _, records = watch(model, lambda k: x)
    h = act(model[0](x))
    by_hand = (h.abs() > 0.99) if limit else ((h < 0.01) | (h > 0.99))
    slope = 1 - h * h if limit else 4 * h * (1 - h)
    assert close(records[0].layers["1"].saturated, by_hand.float().mean().item())
    assert close(records[0].layers["1"].derivative, slope.mean().item())
    assert 0.3 < records[0].layers["1"].saturated < 1
    assert records[0].layers["0"].saturated is None


def test_the_entropy_of_a_softmax_is_over_its_visible_keys(watch):
    scores = torch.randn(8, 6)
    scores[:, 4:] = -math.inf
    p = torch.softmax(scores, -1)
    by_hand = (-(p[:, :4] * p[:, :4].log()).sum(-1) / math.log(4)).mean().item()
    assert close(row_entropy(p).item(), by_hand)
    assert row_entropy(torch.eye(4)).item() == 0
    assert close(row_entropy(torch.full((3, 5), 0.2)).item(), 1.0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 1))
    x = torch.randn(16, 4)
    _, records = watch(model, lambda k: x)
    q = torch.softmax(model[0](x), -1)
    assert close(records[0].layers["1"].entropy, (-(q * q.log()).sum(-1) / math.log(6)).mean().item())


def test_gates_of_an_lstm_that_its_input_drives_to_the_limits_are_saturated(watch):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    _, calm = watch(Last(), lambda k: torch.randn(8, 5, 4))
    _, driven = watch(Last(), lambda k: torch.randn(8, 5, 4) * 1000)
    assert calm[0].layers["lstm"].saturated < 0.01
    assert driven[0].layers["lstm"].saturated > 0.9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_other_formats_are_measured_in_numbers_that_hold_them(dtype):
    x = (torch.randn(16, 4, dtype=torch.float64) * 3).to(dtype)
    row = output_row(x, "", None)
    reals = torch.view_as_real(x) if dtype is torch.complex64 else x
    assert row[0].item() == pytest.approx(reals.double().square().mean().sqrt().item(), rel=1e-3)


def test_the_level_of_large_half_precision_values_does_not_overflow():
    assert output_row(torch.full((64, 64), 60000.0, dtype=torch.float16), "", None)[0].item() == pytest.approx(
        60000.0, rel=1e-4
    )


def test_measuring_changes_nothing():
    x = torch.randn(16, 4)
    kept = x.clone()
    row = output_row(x, "tanh", x)
    assert torch.equal(x, kept)
    assert row.shape == (12,)


# -- functions that are no modules, positions, structure --------------------------------------------------------------


@pytest.mark.parametrize(("function", "kind"), [(F.relu, "relu"), (torch.tanh, "tanh"), (torch.sigmoid, "sigmoid")])
def test_an_activation_that_is_a_function_is_found_at_the_layer_it_follows(function, kind, watch):
    model = Plain(lambda m, x: m.out(function(m.body(x))), body=nn.Linear(4, 16), out=nn.Linear(16, 1))
    with torch.no_grad():
        model.body.weight.mul_(50)
        model.body.bias.zero_()
        if kind == "relu":
            model.body.weight.mul_(0)
            model.body.bias.fill_(-1)
    diagnosis, records = watch(model, lambda k: torch.randn(64, 4), steps=8)
    facts = diagnosis.facts.module("body")
    assert (facts.activation, facts.functional) == (kind, True)
    assert diagnosis.facts.module("out").activation == ""
    s = records[-1].layers["body"]
    assert s.dead == 1.0 if kind == "relu" else s.saturated > 0.8


def test_a_layer_without_an_activation_has_none(watch):
    diagnosis, _ = watch(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
    assert [diagnosis.facts.module(n).activation for n in "01"] == ["", ""]


def test_only_the_last_layer_is_at_the_output(watch):
    diagnosis, _ = watch(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()))
    assert [diagnosis.facts.module(n).position for n in "0123"] == ["hidden", "hidden", "hidden", "output"]


def test_both_heads_of_a_model_are_at_the_output(watch):
    model = Plain(
        lambda m, x: m.a(F.relu(m.body(x))) + 0 * m.b(F.relu(m.body(x))).exp(),
        body=nn.Linear(4, 8), a=nn.Linear(8, 1), b=nn.Linear(8, 1),
    )  # fmt: skip
    diagnosis, _ = watch(model)
    assert {n: diagnosis.facts.module(n).position for n in ("body", "a", "b")} == {
        "body": "hidden",
        "a": "output",
        "b": "output",
    }


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.norm, self.body = (
            kind,
            nn.LayerNorm(4),
            nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)),
        )

    def forward(self, x):
        if self.kind == "pre":
            return x + self.body(self.norm(x))
        if self.kind == "post":
            return self.norm(x + self.body(x))
        return self.body(self.norm(x))


def stack(kind):
    return nn.Sequential(nn.Linear(4, 4), *(Block(kind) for _ in range(4)), nn.Linear(4, 1))


def test_a_plain_stack_is_neither_residual_nor_post_norm(watch):
    diagnosis, _ = watch(stack("plain"))
    assert {"residual", "post_norm"} & diagnosis.facts.structure == set()
    assert "norm" in diagnosis.facts.structure


def test_pre_norm_is_residual_and_not_post_norm(watch):
    diagnosis, _ = watch(stack("pre"))
    assert "residual" in diagnosis.facts.structure
    assert "post_norm" not in diagnosis.facts.structure


def test_post_norm_is_found(watch):
    diagnosis, _ = watch(stack("post"))
    assert "post_norm" in diagnosis.facts.structure


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_own_transformer_layers_are_told_apart(norm_first, watch):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    diagnosis, _ = watch(model, lambda k: torch.randn(4, 5, 8))
    assert ("post_norm" in diagnosis.facts.structure) is not norm_first
    assert "attention" in diagnosis.facts.structure


def test_the_order_of_calls_is_that_of_the_forward_and_not_of_the_definition(watch):
    model = Plain(lambda m, x: m.a(m.b(m.c(x))), a=nn.Linear(4, 1), b=nn.Linear(4, 4), c=nn.Linear(4, 4))
    diagnosis, _ = watch(model)
    assert [n for n in diagnosis.facts.forward_order if n] == ["c", "b", "a"]


def test_a_container_that_hands_on_its_last_childs_output_has_no_numbers_of_its_own(watch):
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1))
    diagnosis, records = watch(model)
    assert list(records[0].layers) == ["0.0", "0.1", "1"]
    assert diagnosis.facts.module("0").container
    assert not diagnosis.facts.module("1").container


def test_a_block_that_makes_its_output_itself_has_numbers(watch):
    diagnosis, records = watch(stack("pre"))
    assert "1" in records[0].layers
    assert not diagnosis.facts.module("1").container
    assert diagnosis.facts.module("1").has_children


@pytest.mark.parametrize(
    ("norm", "x", "over"),
    [
        (nn.LayerNorm(4), torch.randn(16, 4), 4),
        (nn.BatchNorm1d(4), torch.randn(16, 4), 16),
        (nn.BatchNorm2d(3), torch.randn(2, 3, 5, 5), 50),
        (nn.GroupNorm(2, 4), torch.randn(2, 4, 3, 3), 18),
        (nn.InstanceNorm2d(3, affine=True), torch.randn(2, 3, 5, 5), 25),
    ],
)
def test_a_norm_knows_over_how_many_values_it_divides(norm, x, over, watch):
    diagnosis, _ = watch(norm, lambda k: x, loss=lambda out: out.pow(3).mean())
    assert diagnosis.facts.module("").norm_over == over


# -- outputs and calls of all kinds -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    loss: torch.Tensor | None
    logits: torch.Tensor


def test_the_first_tensor_of_a_nested_output_is_found():
    x = torch.zeros(2)
    packed = nn.utils.rnn.pack_sequence([x])
    for value in (x, (None, x), [[x]], {"a": None, "b": (x,)}, Answer(None, x)):
        assert first_tensor(value) is x
    assert first_tensor(packed) is packed.data
    for value in (None, 3, "text", {"a": "b"}, [[[[[x]]]]]):
        assert first_tensor(value) is None


def test_a_packed_sequence_is_measured(watch):
    def forward(m, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
        return m.out(m.lstm(packed)[0].data)

    model = Plain(forward, lstm=nn.LSTM(4, 8, batch_first=True), out=nn.Linear(8, 1))
    diagnosis, records = watch(model, lambda k: torch.randn(3, 5, 4))
    assert records[0].layers["lstm"].rms > 0
    assert diagnosis.facts.module("lstm").recurrent


def test_of_a_module_that_is_called_often_the_worst_of_the_first_calls_counts(watch):
    scales = [1.0, 5.0, 2.0]
    model = Plain(lambda m, x: sum(m.shared(x * s) for s in scales), shared=nn.Linear(4, 4, bias=False))
    x = torch.randn(16, 4)
    _, records = watch(model, lambda k: x)
    out = model.shared(x)
    s = records[0].layers["shared"]
    assert close((s.rms, s.high, s.low), (5 * rms(out), 5 * out.max().item(), 5 * out.min().item()))


def test_a_module_that_is_called_very_often_is_measured_a_bounded_number_of_times(recorded):
    model = Plain(lambda m, x: sum(m.shared(x) for _ in range(50)), shared=nn.Linear(4, 4))
    dbg, records = recorded(model)
    with dbg:
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            assert dbg._session.forward.places[1].calls <= 50
            dbg.record_loss(0.0)
    assert [r.step for r in records] == [0, 1, 2]
    assert CALLS < 50


def test_a_shared_module_has_one_name(watch):
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    diagnosis, records = watch(model)
    assert [m.name for m in diagnosis.facts.modules] == ["", "0", "1"]
    assert "0" in records[0].layers


def test_outputs_that_hold_no_number_are_passed_over(watch):
    ids = Plain(lambda m, x: (x > 0).long().sum(-1))
    model = Plain(lambda m, x: m.out(m.embed(m.ids(x))), ids=ids, embed=nn.Embedding(9, 4), out=nn.Linear(4, 1))
    _, records = watch(model)
    assert "ids" not in records[0].layers
    assert "embed" in records[0].layers


def test_empty_outputs_are_passed_over(watch):
    model = Plain(lambda m, x: m.out(x) + 0 * m.none(x[:0]).sum(), out=nn.Linear(4, 1), none=nn.Linear(4, 4))
    _, records = watch(model)
    assert "none" not in records[0].layers


# -- where values first stop being finite -----------------------------------------------------------------------------


def bad_at(records):
    return [r.first_bad for r in records]


def three(function=None, **parts):
    return Plain(
        lambda m, x: m.c(m.b((function or F.relu)(m.a(x)))),
        a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 1), **parts,
    )  # fmt: skip


def test_a_finite_run_has_no_bad_place(watch):
    _, records = watch(three(), steps=5)
    assert bad_at(records) == [None] * 5


def test_a_bad_input_is_named_before_all_that_it_spoils(watch):
    _, records = watch(three(), lambda k: torch.randn(16, 4) * (math.nan if k == 2 else 1), steps=3)
    assert bad_at(records) == [None, None, ("input", None)]


def test_the_module_that_made_it_is_named_and_not_those_that_pass_it_on(watch):
    class Bad(nn.Module):
        def forward(self, x):
            return (x - x.max() - 1).log()

    model = nn.Sequential(nn.Linear(4, 4), Bad(), nn.Linear(4, 4), nn.Linear(4, 1))
    _, records = watch(model, steps=1)
    assert bad_at(records) == [("forward", "1")]
    assert not records[0].layers["1"].finite and records[0].layers["1"].inputs_finite
    assert not records[0].layers["2"].inputs_finite


def test_a_function_between_two_modules_is_its_parents(watch):
    model = nn.Sequential(nn.Linear(4, 4), three(lambda h: (h - 1e6).sqrt()))
    _, records = watch(model, steps=1)
    assert bad_at(records) == [("forward", "1")]


def test_the_loss_is_named_where_all_outputs_are_finite(watch):
    _, records = watch(three(), steps=1, loss=lambda out: (out.detach() * 0 - 1).log().mean() + 0 * out.mean())
    assert bad_at(records) == [("loss", None)]


def test_a_gradient_is_named_where_the_loss_is_finite(watch):
    class Norm(nn.Module):
        def forward(self, x):
            return (x * 0).square().sum(1, keepdim=True).sqrt() + x

    model = nn.Sequential(nn.Linear(4, 4), Norm(), nn.Linear(4, 1))
    _, records = watch(model, steps=1)
    assert bad_at(records) == [("gradient", "1")]


def test_a_mask_of_minus_infinity_is_no_failure(watch):
    mask = torch.tensor([0.0, 0.0, 0.0, -math.inf])
    scores = Plain(lambda m, x: x + mask)
    model = nn.Sequential(nn.Linear(4, 4), scores, nn.Softmax(-1), nn.Linear(4, 1))
    _, records = watch(model)
    assert bad_at(records) == [None] * 3
    assert records[0].layers["1"].inf_share > 0
