"""The loss as its operator saw it, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg.watch.losses import LOSS_COLUMNS, before_overflow, find_loss, read, unscaled


def seen(loss):
    found = find_loss(loss.grad_fn)
    return None if found is None else read(found, found.values.tolist())


def live(*shape):
    return torch.randn(*shape, requires_grad=True) * 1.0  # no leaf: like a model's output


def entropy(labels):
    _, counts = torch.unique(labels, return_counts=True)
    shares = (counts / counts.sum()).tolist()
    return -sum(p * math.log(p) for p in shares)


def close(a, b):
    return a == pytest.approx(b, rel=1e-5)


def test_a_loss_made_of_plain_arithmetic_is_not_read():
    assert seen((live(8, 1) - torch.randn(8, 1)).square().mean()) is None


def test_l1_keeps_nothing_to_be_read():
    assert seen(F.l1_loss(live(8, 1), torch.randn(8, 1))) is None


def test_a_divergence_is_made_of_plain_arithmetic_and_not_read():
    q, p = torch.log_softmax(live(16, 4), 1), torch.softmax(torch.randn(16, 4), 1)
    assert seen(F.kl_div(q, p, reduction="batchmean")) is None


# -- classification ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy_is_read_per_sample_whatever_its_reduction(reduction):
    x, y = live(32, 5), torch.arange(32) % 5
    stats = seen(F.cross_entropy(x, y, reduction=reduction))
    by_hand = -torch.log_softmax(x, 1)[torch.arange(32), y].mean().item()
    assert (stats.kind, stats.reduction) == ("nll", reduction)
    assert close(stats.value, by_hand)
    assert close(stats.chance, entropy(y))
    assert (stats.target_low, stats.target_high, stats.target_rms) == (0, 4, None)
    assert not stats.probabilities


def test_labels_that_are_ignored_count_neither_for_the_loss_nor_for_chance():
    x, y = live(40, 4), torch.arange(40) % 2
    y[10:] = -100
    stats = seen(F.cross_entropy(x, y))
    kept = y[:10]
    assert close(stats.value, -torch.log_softmax(x, 1)[torch.arange(10), kept].mean().item())
    assert close(stats.chance, math.log(2))
    assert (stats.target_low, stats.target_high) == (0, 1)


def test_another_ignore_index_is_honoured():
    x, y = live(40, 4), torch.arange(40) % 4
    stats = seen(F.cross_entropy(x, y, ignore_index=3))
    kept = y != 3
    assert close(stats.value, -torch.log_softmax(x, 1)[kept, y[kept]].mean().item())
    assert close(stats.chance, math.log(3))


def test_a_batch_of_which_no_label_counts_has_no_value_and_no_chance():
    stats = seen(F.cross_entropy(live(8, 4), torch.full((8,), -100)))
    assert (stats.value, stats.chance, stats.target_low, stats.target_high) == (None, None, None, None)


def test_class_weights_weigh_the_value_as_they_do_the_loss():
    x, y, w = live(30, 3), torch.arange(30) % 3, torch.tensor([1.0, 2.0, 10.0])
    loss = F.cross_entropy(x, y, weight=w)
    assert close(seen(loss).value, loss.item())


def test_label_smoothing_leaves_the_loss_on_the_labels():
    x, y = live(30, 3), torch.arange(30) % 3
    loss = F.cross_entropy(x, y, label_smoothing=0.2)
    assert close(seen(loss).value, F.cross_entropy(x, y).item())


def test_targets_of_images_are_read_like_labels():
    x, y = live(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    stats = seen(F.cross_entropy(x, y))
    assert stats.kind == "nll"
    assert close(stats.value, F.cross_entropy(x, y).item())
    assert close(stats.chance, entropy(y.flatten()))


def test_one_class_alone_has_a_chance_of_zero():
    assert seen(F.cross_entropy(live(8, 3), torch.ones(8, dtype=torch.long))).chance == 0


def test_a_single_softmax_below_the_loss_is_its_own():
    x, y = live(16, 4), torch.arange(16) % 4
    assert not seen(F.nll_loss(torch.log_softmax(x, 1), y)).probabilities
    assert not seen(nn.CrossEntropyLoss()(x, y)).probabilities


def test_attention_below_logits_is_no_double_softmax():
    x, y = live(16, 4), torch.arange(16) % 4
    assert not seen(F.cross_entropy(torch.softmax(x, 1) @ torch.randn(4, 4), y)).probabilities


@pytest.mark.parametrize("between", [lambda p: p, lambda p: p.view(4, 4, 4).flatten(0, 1)])
def test_a_softmax_below_cross_entropy_is_seen(between):
    x, y = live(16, 4), torch.arange(16) % 4
    assert seen(F.cross_entropy(between(torch.softmax(x, 1)), y)).probabilities


# -- binary -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_binary_cross_entropy_is_read_with_and_without_logits(reduction):
    z, t = live(64, 1), (torch.arange(64) < 16).float().unsqueeze(1)
    p = torch.sigmoid(z)
    by_hand = -(t * p.log() + (1 - t) * (1 - p).log()).mean().item()
    chance = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    for loss, kind in (
        (F.binary_cross_entropy(p, t, reduction=reduction), "bce"),
        (F.binary_cross_entropy_with_logits(z, t, reduction=reduction), "bce_with_logits"),
    ):
        stats = seen(loss)
        assert (stats.kind, stats.reduction) == (kind, reduction)
        assert close(stats.value, by_hand)
        assert close(stats.chance, chance)
        assert (stats.target_low, stats.target_high) == (0, 1)


def test_binary_targets_outside_their_range_have_no_chance():
    stats = seen(F.binary_cross_entropy_with_logits(live(64), torch.linspace(-1, 2, 64)))
    assert stats.chance is None
    assert (stats.target_low, stats.target_high) == (-1, 2)


# -- regression -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_squared_error_is_read_and_chance_is_the_variance_of_the_targets(reduction):
    x, t = live(64, 2), torch.randn(64, 2) * torch.tensor([1.0, 5.0]) + torch.tensor([0.0, 100.0])
    stats = seen(F.mse_loss(x, t, reduction=reduction))
    assert (stats.kind, stats.reduction) == ("mse", reduction)
    assert close(stats.value, ((x - t) ** 2).mean().item())
    assert close(stats.chance, t.var(0, correction=0).mean().item())
    assert close(stats.target_rms, t.square().mean().sqrt().item())
    assert close(stats.target_low, t.min().item()) and close(stats.target_high, t.max().item())
    assert close(stats.output_low, x.min().item()) and close(stats.output_high, x.max().item())


def test_an_outlier_is_measured_in_median_deviations():
    t = torch.tensor([-1.0, 1.0] * 10 + [0.0, 500.0]).unsqueeze(1)
    stats = seen(F.mse_loss(live(22, 1), t))
    centre = t.median().item()
    by_hand = (t - centre).abs().max().item() / (t - centre).abs().median().item()
    assert close(stats.outlier, by_hand)
    assert stats.outlier > 200


@pytest.mark.parametrize(("function", "kind"), [(F.smooth_l1_loss, "smooth_l1"), (F.huber_loss, "huber")])
def test_robust_losses_are_read_as_absolute_errors(function, kind):
    x, t = live(63, 1), torch.randn(63, 1) * 3
    stats = seen(function(x, t))
    assert stats.kind == kind
    assert close(stats.value, (x - t).abs().mean().item())
    assert close(stats.chance, (t - t.median()).abs().mean().item())


# -- what stands around the loss --------------------------------------------------------------------------------------


def test_values_that_are_not_finite_are_missing_not_numbers():
    stats = seen(F.mse_loss(live(8, 1) * math.inf, torch.randn(8, 1)))
    assert stats.value is None
    assert stats.output_high is None


def test_of_a_sum_of_losses_the_one_nearest_to_the_root_is_read():
    x, t, z, y = live(16, 1), torch.randn(16, 1), live(16, 3), torch.arange(16) % 3
    loss = F.cross_entropy(z, y) + 0.1 * F.mse_loss(x, t)
    assert seen(loss).kind == "nll"


def test_a_regulariser_beside_the_loss_changes_nothing():
    w, z, y = live(5, 5), live(16, 3), torch.arange(16) % 3
    stats = seen(F.cross_entropy(z, y) + 1e-2 * w.square().sum())
    assert close(stats.value, F.cross_entropy(z, y).item())


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss * torch.tensor(65536.0),
        lambda loss: loss / 4,
        lambda loss: loss / 8 * torch.tensor(1024.0),
        lambda loss: torch.tensor(2.0) * loss,
    ],
    ids=["scaled", "divided", "divided and scaled", "scaled from the left"],
)
def test_constant_factors_are_undone_and_the_statistics_are_the_same(change):
    z, y = live(16, 3), torch.arange(16) % 3
    loss = F.cross_entropy(z, y)
    value, _ = unscaled(change(loss))
    assert close(value.item(), loss.item())
    assert close(seen(change(loss)).value, loss.item())


def test_an_unscaled_loss_is_itself():
    loss = F.mse_loss(live(8, 1), torch.randn(8, 1))
    value, changed = unscaled(loss)
    assert value.item() == loss.item()
    assert not changed


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_sum_that_is_divided_by_its_count_is_a_mean(scale):
    z, y = live(16, 3), torch.arange(16) % 3
    mean = F.cross_entropy(z, y)
    assert close(unscaled(F.cross_entropy(z, y, reduction="sum") / 16 * scale)[0].item(), mean.item())
    mask = torch.arange(16) % 2
    by_token = F.cross_entropy(z, y, reduction="none")
    assert close(unscaled((by_token * mask).sum() / mask.sum() * scale)[0].item(), by_token[1::2].mean().item())
    assert close(unscaled(mean / 4)[0].item(), mean.item())  # of micro-batches


def test_a_factor_that_is_learned_is_part_of_the_loss():
    weight = torch.tensor(3.0, requires_grad=True)
    loss = F.mse_loss(live(8, 1), torch.randn(8, 1)) * weight
    value, changed = unscaled(loss)
    assert value.item() == loss.item()
    assert not changed


def test_a_loss_that_is_divided_into_something_is_no_scaled_loss():
    loss = torch.tensor(3.0) / F.mse_loss(live(8, 1), torch.randn(8, 1))
    value, changed = unscaled(loss)
    assert value.item() == loss.item()
    assert not changed


# -- the sign with which the loss enters what backward starts from -----------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss,
        lambda loss: loss * 65536.0,
        lambda loss: loss / 4,
        lambda loss: 0.5 * loss.mean(),
        lambda loss: loss - 1.0,
        lambda loss: loss - live(5).square().sum(),
        lambda loss: loss + live(5).neg().sum(),
        lambda loss: torch.neg(-loss),
        lambda loss: -loss * -2,
        lambda loss: 0 - (1.0 - loss),
        lambda loss: loss * torch.tensor(-1.0, requires_grad=True),
        lambda loss: (1 - torch.exp(-loss)) ** 2 * loss,
    ],
    ids=[
        "plain",
        "scaled up",
        "divided",
        "half of its mean",
        "minus a number",
        "minus a term beside it",
        "beside a negated term",
        "negated twice",
        "negated and scaled by a negative number",
        "subtracted twice",
        "times a factor that is learned",
        "focal",
    ],
)
def test_a_loss_that_is_minimised_has_the_sign_plus(change):
    assert seen(change(F.mse_loss(live(8, 1), torch.randn(8, 1)))).sign == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: -loss,
        lambda loss: 0 - loss,
        lambda loss: loss * -1,
        lambda loss: -1 * loss,
        lambda loss: loss / -2,
        lambda loss: loss * torch.tensor(-3.0),
        lambda loss: live(5).square().sum() - loss,
        lambda loss: -loss / 4 * 1024.0,
        lambda loss: (1.0 - loss).mean(),
        lambda loss: torch.neg(torch.neg(-loss)),
    ],
    ids=[
        "minus",
        "subtracted from zero",
        "times minus one",
        "minus one times it",
        "divided by minus two",
        "times a negative tensor",
        "subtracted from another term",
        "negated and scaled",
        "subtracted below a mean",
        "negated three times",
    ],
)
def test_a_loss_that_is_maximised_has_the_sign_minus(change):
    loss = F.mse_loss(live(8, 1), torch.randn(8, 1))
    stats = seen(change(loss))
    assert stats.sign == -1
    assert close(stats.value, loss.item())


def test_the_sign_agrees_with_the_direction_of_the_gradient():
    x, t = torch.randn(8, 1, requires_grad=True), torch.randn(8, 1)
    for change in (lambda loss: loss / 2, lambda loss: 3 - loss, lambda loss: loss / -2, lambda loss: -(1 - loss)):
        loss = F.mse_loss(x, t)
        (plain,) = torch.autograd.grad(loss, x, retain_graph=True)
        (changed,) = torch.autograd.grad(change(loss), x, retain_graph=True)
        assert seen(change(loss)).sign == torch.sign((plain * changed).sum()).item()


def test_a_loss_whose_graph_was_freed_is_not_read():
    x = live(8, 1)
    loss = F.mse_loss(x, torch.randn(8, 1))
    loss.backward()
    assert seen(loss) is None


def test_reading_leaves_the_gradient_as_it_is():
    x, t = torch.randn(16, 3, requires_grad=True), torch.arange(16) % 3
    F.cross_entropy(x, t).backward()
    once = x.grad.clone()
    x.grad = None
    loss = F.cross_entropy(x, t)
    seen(loss)
    loss.backward()
    assert torch.equal(x.grad, once)


def test_each_column_has_its_field():
    stats = seen(F.mse_loss(live(8, 1), torch.randn(8, 1)))
    assert all(getattr(stats, name) is not None for name in LOSS_COLUMNS)


def test_a_loss_whose_product_with_the_scale_is_infinite_is_the_one_that_the_scaler_was_given():
    whole, given = torch.tensor(math.inf), torch.tensor(0.5, dtype=torch.float64)
    assert float(before_overflow(whole, given)) == 0.5
    assert float(before_overflow(torch.tensor(0.25), given)) == 0.25  # it was divided after it was recorded
    assert before_overflow(whole, None) is whole and before_overflow(None, given) is None
    assert math.isnan(float(before_overflow(whole, torch.tensor(math.nan))))
