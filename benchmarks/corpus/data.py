"""Synthetic data: every set is drawn from a seed, rows first, with as many held-out rows as are asked for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

HELD = 256  # rows that a score is taken on


def generator(seed: int) -> torch.Generator:
    """Apart from the seeds that programs start their weights from."""
    return torch.Generator().manual_seed(9000 + seed)


def blobs(seed: int, count: int, width: int, classes: int, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Gaussian classes, centred, of unit scale."""
    g = generator(seed)
    centre = 2.0 * torch.randn(classes, width, generator=g) / width**0.25
    y = torch.randint(0, classes, (count + HELD,), generator=g)
    x = centre[y] + noise * torch.randn(count + HELD, width, generator=g)
    return (x - x.mean(0)) / x.std(0), y


def curve(seed: int, count: int, width: int, outputs: int = 1, noise: float = 0.05) -> tuple[Tensor, Tensor]:
    """A smooth function of several variables plus noise, of unit scale."""
    g = generator(seed)
    x = torch.randn(count + HELD, width, generator=g)
    first, second = torch.randn(width, 12, generator=g) / width**0.5, torch.randn(12, outputs, generator=g)
    y = torch.sin(1.5 * x @ first) @ second
    y = (y - y.mean(0)) / y.std(0)
    return x, y + noise * torch.randn(count + HELD, outputs, generator=g)


def pictures(seed: int, count: int, classes: int, side: int = 10, noise: float = 0.7) -> tuple[Tensor, Tensor]:
    """Smooth prototypes plus noise, one channel."""
    g = generator(seed)
    small = torch.randn(classes, 1, 4, 4, generator=g)
    prototypes = F.interpolate(small, size=(side, side), mode="bilinear", align_corners=False)
    y = torch.randint(0, classes, (count + HELD,), generator=g)
    return prototypes[y] + noise * torch.randn(count + HELD, 1, side, side, generator=g), y


def waves(seed: int, count: int, length: int, classes: int) -> tuple[Tensor, Tensor]:
    """Sequences of two channels whose frequency is the class."""
    g = generator(seed)
    y = torch.randint(0, classes, (count + HELD,), generator=g)
    time = torch.arange(length) / length
    phase = 6.28 * torch.rand(count + HELD, 1, generator=g)
    angle = 6.28 * (1 + y.unsqueeze(1)) * time + phase
    x = torch.stack([angle.sin(), angle.cos()], -1)
    return x + 0.3 * torch.randn(x.shape, generator=g), y


def memory(seed: int, count: int, length: int, classes: int) -> tuple[Tensor, Tensor]:
    """Noise after a first element that alone tells the class."""
    g = generator(seed)
    y = torch.randint(0, classes, (count + HELD,), generator=g)
    x = 0.1 * torch.randn(count + HELD, length, classes, generator=g)
    x[:, 0] += 2.0 * F.one_hot(y, classes)
    return x, y


def tokens(seed: int, count: int, length: int, vocabulary: int, classes: int) -> tuple[Tensor, Tensor]:
    """Token sequences; each class prefers its own tokens."""
    g = generator(seed)
    y = torch.randint(0, classes, (count + HELD,), generator=g)
    taste = torch.softmax(1.5 * torch.randn(classes, vocabulary, generator=g), 1)
    return torch.multinomial(taste[y], length, replacement=True, generator=g), y


def language(seed: int, count: int, length: int, vocabulary: int) -> Tensor:
    """Token sequences of a Markov chain with few followers for each token."""
    g = generator(seed)
    likely = torch.softmax(3.0 * torch.randn(vocabulary, vocabulary, generator=g), 1)
    out = [torch.randint(0, vocabulary, (count + HELD,), generator=g)]
    for _ in range(length):
        out.append(torch.multinomial(likely[out[-1]], 1, generator=g).squeeze(1))
    return torch.stack(out, 1)


def factors(seed: int, count: int, width: int, hidden: int = 4) -> Tensor:
    """Points near a curved surface of few dimensions, of unit scale."""
    g = generator(seed)
    code = torch.randn(count + HELD, hidden, generator=g)
    x = torch.tanh(code @ torch.randn(hidden, 2 * width, generator=g)) @ torch.randn(2 * width, width, generator=g)
    return (x - x.mean(0)) / x.std() + 0.05 * torch.randn(count + HELD, width, generator=g)


def ratings(seed: int, count: int, users: int, items: int) -> tuple[Tensor, Tensor, Tensor]:
    """(user, item, liked): a low-rank taste."""
    g = generator(seed)
    taste, kind = torch.randn(users, 3, generator=g), torch.randn(items, 3, generator=g)
    u = torch.randint(0, users, (count + HELD,), generator=g)
    i = torch.randint(0, items, (count + HELD,), generator=g)
    return u, i, ((taste[u] * kind[i]).sum(1) > 0).float()


def split(*tensors: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(training rows, held-out rows)."""
    return tuple(t[:-HELD] for t in tensors), tuple(t[-HELD:] for t in tensors)
