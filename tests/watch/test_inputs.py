"""What is read of a batch, against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from neuraldbg.watch import inputs
from neuraldbg.watch.inputs import ELEMENTS, FEATURES, features_last


def seen(x, name="0"):
    measured = inputs.measure(name, x)
    return inputs.read(measured, measured.values.tolist())


def close(a, b):
    return list(a) == pytest.approx(list(b), rel=1e-5, abs=1e-6)


def test_moments_are_per_feature():
    x = torch.randn(64, 3) * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 100.0, -5.0])
    stats = seen(x)
    assert stats.rows == 64
    assert close(stats.means, x.mean(0).tolist())
    assert close(stats.stds, x.std(0, correction=0).tolist())
    assert close(stats.rms, x.square().mean(0).sqrt().tolist())


def test_the_features_of_images_are_their_channels():
    x = torch.randn(4, 3, 5, 5) + torch.tensor([0.0, 10.0, 20.0])[:, None, None]
    stats = seen(x)
    assert stats.rows == 4
    assert close(stats.means, x.mean((0, 2, 3)).tolist())


def test_the_features_of_sequences_are_their_last_dimension():
    x = torch.randn(4, 7, 2) + torch.tensor([0.0, 10.0])
    assert close(seen(x).means, x.mean((0, 1)).tolist())


def test_a_vector_and_a_number_are_one_feature():
    assert len(seen(torch.randn(10)).means) == 1
    stats = seen(torch.tensor(3.0))
    assert (stats.rows, stats.means) == (1, (3.0,))


def test_of_many_features_a_bounded_number_is_read():
    stats = seen(torch.randn(8, 3000))
    assert 0 < len(stats.means) <= FEATURES


def test_of_a_huge_batch_a_bounded_part_is_read():
    assert features_last(torch.zeros(ELEMENTS, 3)).numel() <= ELEMENTS + 3  # a row more by rounding


def test_the_far_value_and_how_often_it_stands_there():
    x = torch.randn(50, 2)
    x[[3, 9, 20], 1] = -9999.0
    stats = seen(x)
    assert (stats.far, stats.far_value, stats.far_repeats) == (9999.0, -9999.0, 3)


def test_equal_batches_share_a_fingerprint_and_others_do_not():
    x = torch.randn(32, 4)
    swapped = x[torch.tensor([1, 0, *range(2, 32)])]
    assert seen(x).fingerprint == seen(x.clone()).fingerprint
    assert len({seen(b).fingerprint for b in (x, x + 1e-3, swapped, -x, torch.randn(32, 4))}) == 5


def test_a_batch_of_zeros_and_one_that_is_almost():
    x = torch.zeros(8, 2)
    assert seen(x).zeros
    x[7, 1] = 1e-8
    assert not seen(x).zeros


def test_values_that_are_not_finite_are_placed_by_feature_and_sample():
    x = torch.randn(10, 4)
    x[2, 1] = x[5, 1] = math.nan
    x[5, 3] = math.inf
    stats = seen(x)
    assert (stats.nans, stats.infs) == (2, 1)
    assert stats.bad_features == (1, 3)
    assert stats.bad_rows == (2, 5)


def test_a_clean_batch_has_no_bad_places():
    stats = seen(torch.randn(10, 4))
    assert (stats.nans, stats.infs, stats.bad_features, stats.bad_rows) == (0, 0, (), ())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_formats_are_read_like_float32(dtype):
    x = torch.randn(64, 3).to(dtype)
    assert close(seen(x).means, x.double().mean(0).tolist())


def test_half_precision_values_near_the_limit_do_not_overflow_in_the_reading():
    assert seen(torch.full((4, 2), 60000.0, dtype=torch.float16)).rms == pytest.approx((60000.0, 60000.0))


# -- in a session -----------------------------------------------------------------------------------------------------


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x, side=None, ids=None):
        h = self.a(x)
        return self.b(h if side is None else h + side["more"])


def steps(model, dbg, count, **kwargs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(5, 3), **kwargs).square().mean().backward()
            optimizer.step()


def test_positional_named_and_nested_inputs_are_read_and_whole_numbers_are_not(recorded):
    model = Two()
    dbg, records = recorded(model)
    steps(model, dbg, 2, side={"more": torch.ones(5, 2)}, ids=torch.arange(5))
    assert [{x.name for x in r.inputs} for r in records] == [{"0", "side"}] * 2


def test_what_a_model_made_is_no_data(recorded):
    gen, disc = nn.Linear(3, 3), nn.Linear(3, 1)
    dbg, records = recorded({"gen": gen, "disc": disc})
    optimizer = torch.optim.SGD([*gen.parameters(), *disc.parameters()], lr=0.1)
    with dbg:
        for _ in range(2):
            optimizer.zero_grad()
            fake = gen(torch.randn(5, 3))
            (disc(fake).mean() + disc(fake.detach()).mean()).backward()
            optimizer.step()
    assert [len(r.inputs) for r in records] == [1, 1]


def test_the_batch_of_an_evaluation_is_not_the_trainings(recorded):
    model = Two()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for _ in range(3):
            with torch.no_grad():
                model(torch.full((5, 3), 1e6))
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    assert all(x.far < 10 for r in records for x in r.inputs)
    assert all(r.inputs for r in records)
