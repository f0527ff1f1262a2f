"""The batch that enters the model: per-feature moments, far values, a fingerprint; read once per entry and step."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from neuraldbg.record import InputStats
from neuraldbg.watch.measure import as_float

FEATURES = 256  # features looked at; more are taken evenly spaced
ELEMENTS = 1 << 20  # elements of a batch looked at
PRINT = 4096  # elements that a fingerprint weighs by their place: two orders of one batch differ in it
NAMED = 64  # samples that are looked at one by one, to name those that hold NaN or infinity


@dataclasses.dataclass(frozen=True)
class Measured:
    """One input on its device: a flat vector to transfer, and what is needed to read it back."""

    name: str
    rows: int
    features: int
    values: Tensor


def features_last(x: Tensor) -> Tensor:
    """[samples, features]: channels of images [N, C, H, W], else the last dimension."""
    if x.dim() >= 4:
        x = x.movedim(1, -1)
    x = x.reshape(-1, x.shape[-1]) if x.dim() > 1 else x.reshape(-1, 1)
    if x.numel() > ELEMENTS:
        x = x[:: -(-x.numel() // ELEMENTS)]
    if x.shape[1] > FEATURES:
        x = x[:, :: -(-x.shape[1] // FEATURES)]
    return x


def measure(name: str, x: Tensor) -> Measured:
    """Moments per feature and the whole batch's extremes, all on the device.

    Layout of `values`: means, stds, rms (each [features]), then far value, its count, fingerprint, all-zero,
    nan count, inf count, then how many values of each feature are bad, and whether a value of each of the
    first `NAMED` samples is.
    """
    x = as_float(x)
    rows = features_last(x)
    std, mean = torch.std_mean(rows, dim=0, correction=0)
    rms = (rows * rows).mean(0).sqrt()
    flat = x.reshape(-1)
    low, high = torch.aminmax(flat)
    far = torch.where(-low > high, low, high)  # an index by a tensor would wait for the device
    repeats = (flat == far).sum()
    weight = torch.linspace(0.5, 1.5, min(flat.numel(), PRINT), device=flat.device)
    stride = -(-flat.numel() // weight.numel())
    part = flat[::stride]
    fingerprint = (part * weight[: part.numel()]).double().sum() + 3.7 * flat.sum(dtype=torch.float64)
    nan, inf = torch.isnan(flat).sum(), torch.isinf(flat).sum()
    bad = ~torch.isfinite(rows)
    by_sample = ~torch.isfinite(x.reshape(x.shape[0], -1) if x.dim() else x.reshape(1, 1))
    scalars = torch.stack(
        [far.double(), repeats.double(), fingerprint, (flat == 0).all().double(), nan.double(), inf.double()]
    )
    values = torch.cat(
        [mean.double(), std.double(), rms.double(), scalars, bad.sum(0).double(), by_sample[:NAMED].any(1).double()]
    )
    return Measured(name, int(x.shape[0]) if x.dim() else 1, rows.shape[1], values)


def read(measured: Measured, numbers: list[float]) -> InputStats:
    """The statistics from the transferred numbers."""
    f = measured.features
    far, repeats, fingerprint, zeros, nans, infs = numbers[3 * f : 3 * f + 6]
    by_feature = numbers[3 * f + 6 : 4 * f + 6]
    by_row = numbers[4 * f + 6 :]
    return InputStats(
        name=measured.name,
        rows=measured.rows,
        means=tuple(numbers[:f]),
        stds=tuple(numbers[f : 2 * f]),
        rms=tuple(numbers[2 * f : 3 * f]),
        far=abs(far) if math.isfinite(far) else math.inf,
        far_value=far,
        far_repeats=int(repeats),
        fingerprint=fingerprint,
        zeros=bool(zeros),
        nans=int(nans),
        infs=int(infs),
        bad_features=tuple(i for i, n in enumerate(by_feature) if n),
        bad_rows=tuple(i for i, n in enumerate(by_row) if n),
    )
