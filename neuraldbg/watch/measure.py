"""Tensor -> numbers on the tensor's own device: pure functions, no host synchronisation, no state.

Every statistic of a module's output is one column of `COLUMNS`. Columns are signed so that the maximum over several
calls in one step is the number to keep (the lowest value is stored as its negative); -inf means "not measured".
"""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = (
    "rms",
    "-low",
    "high",
    "mean",
    "spread",  # the largest of the calls: a module that varies in one call is not constant
    "offset",
    "-dead_now",
    "saturated",
    "-derivative",
    "-entropy",
    "inputs_high",
    "inputs_rms",
    "ran",  # 1 where a traced module that is not looked at has run
)
WIDTH = len(COLUMNS)
UNSEEN = float("-inf")

TANH_LIMIT = 0.99  # the tail in which tanh's derivative is below 2 %
SIGMOID_LIMIT = 0.01  # the same for the logistic function: below 4 % of its largest derivative
ELEMENTS = 1 << 16  # that a share of saturated outputs is taken over: exact to 0.4 %
ROWS = 4096  # rows of a tensor that per-unit statistics look at; more change a standard deviation by under 2 %


def as_float(x: Tensor) -> Tensor:
    """The values as float32 or float64, detached: complex ones as pairs of numbers, other formats as float32."""
    x = x.detach()
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj())
    if x.dtype in (torch.float32, torch.float64):
        return x
    return x.float()


def rows_of(x: Tensor) -> Tensor:
    """The tensor as [samples, units]: channels for images [N, C, ...], the last dimension otherwise.

    Of an image with more than `ROWS` places only some are taken, before anything is copied; their number is odd, so
    that they are not all in one column of a picture whose width is a power of two.
    """
    if x.dim() >= 4:
        x = x.flatten(2)
        apart = -(-x.shape[0] * x.shape[2] // ROWS)
        x = x[:, :, :: min(apart | 1, x.shape[2])].movedim(1, -1) if apart > 1 else x.movedim(1, -1)
    if x.dim() == 0:
        return x.reshape(1, 1)
    if x.dim() == 1:
        return x.reshape(-1, 1)
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] > ROWS:
        rows = rows[:: -(-rows.shape[0] // ROWS)]
    return rows


def output_row(out: Tensor, function: str, inputs: Tensor | None, rectified: Tensor | None = None) -> Tensor:
    """The first statistics of `COLUMNS` of one call, as a float32 vector as long as the last that is measured.

    out: the module's output; function: the bounded function whose output this is ("tanh", "sigmoid", "softmax"),
    "tanh()" or "sigmoid()" where the function is applied after the module, or "". inputs: the call's input where it is
    not the measured output of another module. rectified: count the units of this tensor that no sample activates.
    """
    x = as_float(out)
    low, high = torch.aminmax(x)
    rms = torch.linalg.vector_norm(x) / x.numel() ** 0.5
    rows = rows_of(x)
    known = {"rms": rms, "-low": -low, "high": high, "mean": x.mean()}
    if rows.shape[0] > 1:
        std, mean = moments(rows)
        known["spread"] = std.mean() / rms.clamp_min(1e-30)
        known["offset"] = (mean.abs() / std.clamp_min(1e-30)).mean()
    if rectified is not None:
        known["-dead_now"] = (rows_of(rectified.detach()).amax(0) > 0).float().mean() - 1
    if function:
        known.update(bounded(x, function))
    if inputs is not None and inputs.numel():
        given = as_float(inputs)
        known["inputs_high"] = given.abs().amax()
        known["inputs_rms"] = torch.linalg.vector_norm(given) / given.numel() ** 0.5
    unseen = x.new_full((), UNSEEN)
    columns = COLUMNS[: 1 + max(COLUMNS.index(name) for name in known)]
    return torch.stack([known.get(name, unseen).float() for name in columns])


def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(std, mean) per column, in two plain passes: several times faster than `std_mean` on a CPU.

    Columns are taken relative to the first row, so that a large common offset does not swallow a small spread.
    """
    away = rows - rows[:1]
    mean = away.mean(0)
    variance = (away * away).mean(0) - mean * mean
    return variance.clamp_min(0).sqrt(), mean + rows[0]


def bounded(x: Tensor, function: str) -> dict[str, Tensor]:
    """Of a bounded function's output: the share at the limits and -mean f' / max f', or -normalised entropy."""
    if function == "softmax":
        return {"-entropy": -row_entropy(x)} if x.dim() and x.shape[-1] > 1 else {}
    if x.numel() > ELEMENTS:
        x = x.reshape(-1)[:: -(-x.numel() // ELEMENTS) | 1]
    if function.endswith("()"):
        x = torch.tanh(x) if function == "tanh()" else torch.sigmoid(x)
        function = function[:-2]
    if function == "tanh":
        return {"saturated": (x.abs() > TANH_LIMIT).float().mean(), "-derivative": (x * x - 1).mean()}
    share = (torch.abs(x - 0.5) > 0.5 - SIGMOID_LIMIT).float().mean()
    return {"saturated": share, "-derivative": (4 * x * (x - 1)).mean()}


def row_entropy(p: Tensor) -> Tensor:
    """Mean over rows of the entropy over the log of the number of keys that are not masked out (Zhai et al. 2023)."""
    visible = (p > 0).sum(-1).clamp_min(2)
    entropy: Tensor = torch.special.entr(p).sum(-1)
    return (entropy / visible.log()).mean()


def active_units(out: Tensor) -> Tensor:
    """Which units are above zero on some sample, as bool [units]."""
    x = out.detach()
    if x.dim() >= 4:
        return x.flatten(2).amax(2).amax(0) > 0
    x = x.reshape(-1, x.shape[-1]) if x.dim() > 1 else x.reshape(-1, 1)
    return x.amax(0) > 0


def gate_row(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str) -> Tensor:
    """Share of an LSTM's or GRU's sigmoid gates at their limits, by the input's part of the pre-activation alone.

    The fused kernels show no gate; the recurrent part is bounded by its weights, so an input that drives the gates
    by itself is visible without it. x: [..., features]; weight: [gates * hidden, features].
    """
    rows = rows_of(as_float(x))[:256]
    z = rows @ as_float(weight).t()
    if bias is not None:
        z = z + as_float(bias)
    hidden = weight.shape[0] // (4 if kind == "LSTM" else 3)
    first = z[:, : 2 * hidden]  # LSTM: input, forget, (cell candidate, a tanh), output; GRU: reset, update, (candidate)
    z = torch.cat([first, z[:, 3 * hidden :]], 1) if kind == "LSTM" else first
    gate = torch.sigmoid(z)
    return (torch.abs(gate - 0.5) > 0.5 - SIGMOID_LIMIT).float().mean()


def flat_sample(x: Tensor, most: int) -> Tensor:
    """At most `most` elements of a tensor, evenly spaced, as a new flat float tensor."""
    flat = x.detach()
    flat = flat.coalesce().values().reshape(-1) if flat.is_sparse else flat.reshape(-1)
    if flat.numel() > most:
        flat = flat[:: -(-flat.numel() // most)]
    return flat.float() if flat.dtype != torch.float32 else flat.clone()


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """L2 norms as float32 scalars, one fused call; finiteness shows in the norm (NaN and inf propagate)."""
    plain = [t.coalesce().values() if t.is_sparse else t for t in tensors]
    if all(t.dtype == torch.float32 for t in plain):
        return list(torch._foreach_norm(plain))
    return [torch.linalg.vector_norm(t, dtype=torch.float32) for t in plain]
