"""Programs of other shapes and optimizers: more to make rules on than one program of each kind."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy, explained, outputs
from benchmarks.corpus.plan import Options, Plan, Program


class Wide(nn.Module):
    """Columns through linear layers with a batch norm behind each."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.fc1, self.norm1, self.act1 = nn.Linear(14, 96), nn.BatchNorm1d(96), o.activation(nn.GELU)
        self.fc2, self.norm2, self.act2 = nn.Linear(96, 64), nn.BatchNorm1d(64), o.activation(nn.GELU)
        self.head = nn.Linear(64, 9)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        h = self.act1(self.norm1(self.fc1(x)))
        found: Tensor = self.out(self.head(self.act2(self.norm2(self.fc2(h)))))
        return found


def wide(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.blobs(o.seed, 2000, 14, 9, 0.9))
    return Plan(
        seed=o.seed,
        models={"model": Wide(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 9,
        good=0.6,
        rate=2e-3,
        optimizer="adamw",
        steps=140,
        size=48,
        hidden=("fc1", "fc2"),
        acts=("act1", "act2"),
        head="head",
    )


class Words(nn.Module):
    """The mean of a bag of word vectors, one hidden layer."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(120, 24)
        self.fc, self.act = nn.Linear(24, 40), o.activation(nn.ReLU)
        self.head = nn.Linear(40, 5)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.head(self.act(self.fc(self.words(x)))))
        return found


def words(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.tokens(o.seed, 2400, 18, 120, 5))
    return Plan(
        seed=o.seed,
        models={"model": Words(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 5,
        good=0.6,
        rate=4e-3,
        steps=180,
        hidden=("fc",),
        acts=("act",),
        head="head",
    )


class Groups(nn.Module):
    """Convolutions with strides and group norms, a mean over the picture."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.conv1, self.norm1, self.act1 = nn.Conv2d(1, 12, 3, 2, 1), nn.GroupNorm(3, 12), o.activation(nn.SiLU)
        self.conv2, self.norm2, self.act2 = nn.Conv2d(12, 24, 3, 2, 1), nn.GroupNorm(4, 24), o.activation(nn.SiLU)
        self.fc = nn.Linear(24 * 9, 6)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        h = self.act2(self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x))))))
        found: Tensor = self.out(self.fc(h.flatten(1)))
        return found


def groups(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.pictures(o.seed, 1400, 6, side=12))
    return Plan(
        seed=o.seed,
        models={"model": Groups(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 6,
        good=0.6,
        rate=2e-3,
        steps=110,
        size=24,
        hidden=("conv1", "conv2"),
        acts=("act1", "act2"),
        head="fc",
    )


class Plain(nn.Module):
    """Layers of one width, named by what they do."""

    def __init__(self, o: Options, width: int, inner: int, outputs: int, usual: type[nn.Module]) -> None:
        super().__init__()
        sizes = [width, *[inner] * o.layers(3)]
        self.lin = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.act = nn.ModuleList(o.activation(usual) for _ in self.lin)
        self.head = nn.Linear(inner, outputs)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        for lin, act in zip(self.lin, self.act, strict=True):
            x = act(lin(x))
        found: Tensor = self.out(self.head(x))
        return found.squeeze(-1) if found.shape[-1] == 1 else found


def sorter(o: Options) -> Plan:
    """Many classes, plain SGD at a large rate."""
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.blobs(o.seed, 2600, 30, 10, 1.1))
    model = Plain(o, 30, 80, 10, nn.ReLU)
    return Plan(
        seed=o.seed,
        models={"model": model},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 10,
        good=0.6,
        rate=0.15,
        optimizer="sgd",
        steps=200,
        size=50,
        hidden=tuple(f"lin.{k}" for k in range(len(model.lin))),
        acts=tuple(f"act.{k}" for k in range(len(model.lin))),
        head="head",
    )


def sizes(o: Options) -> Plan:
    """Regression with a Huber loss, Adam, and small targets."""
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.curve(o.seed, 2200, 5))
    model = Plain(o, 5, 56, 1, nn.SiLU)
    return Plan(
        seed=o.seed,
        models={"model": model},
        x=(x,),
        y=0.5 * y.squeeze(1),
        held_x=(hx,),
        held_y=0.5 * hy.squeeze(1),
        loss=F.smooth_l1_loss,
        score=explained,
        chance=0.0,
        good=0.3,
        rate=4e-3,
        steps=180,
        size=40,
        hidden=tuple(f"lin.{k}" for k in range(len(model.lin))),
        acts=tuple(f"act.{k}" for k in range(len(model.lin))),
        head="head",
    )


class Mixture(nn.Module):
    """Weights, means and spreads of three normal distributions."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), o.activation(nn.ReLU), nn.Linear(64, 64), o.activation(nn.ReLU))
        self.head = nn.Linear(64, 9)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


def mixed(out: Tensor, y: Tensor) -> Tensor:
    weight, mean, raw = out.chunk(3, -1)
    spread = F.softplus(raw) + 0.05
    each = -0.5 * ((y.unsqueeze(-1) - mean) / spread).pow(2) - spread.log() - 0.5 * math.log(2 * math.pi)
    return -(weight.log_softmax(-1) + each).logsumexp(-1).mean()


def densities(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.curve(o.seed, 2200, 6, noise=0.2))

    def score(plan: Plan) -> float:
        weight, mean, _ = outputs(plan).chunk(3, -1)
        guess = (weight.softmax(-1) * mean).sum(-1)
        return 1 - ((guess - plan.held_y).pow(2).mean() / plan.held_y.var()).item()

    return Plan(
        seed=o.seed,
        models={"model": Mixture(o)},
        x=(x,),
        y=y.squeeze(1),
        held_x=(hx,),
        held_y=hy.squeeze(1),
        loss=mixed,
        score=score,
        chance=0.0,
        good=0.3,
        rate=3e-3,
        steps=200,
        size=64,
        hidden=("body.0", "body.2"),
        acts=("body.1", "body.3"),
        head="head",
    )


class Arms(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 64), o.activation(nn.ReLU), nn.Linear(64, 64), o.activation(nn.ReLU))
        self.arms = nn.Linear(64, 4)

    def forward(self, s: Tensor) -> Tensor:
        found: Tensor = self.arms(self.body(s))
        return found


def bandit(o: Options) -> Plan:
    """Policy gradient against the batch's mean reward, no critic: the loss is around zero from start to end."""
    torch.manual_seed(o.seed)
    (s, best), (hs, hbest) = data.split(*data.blobs(o.seed, 2400, 12, 4, 1.0))
    dice = torch.Generator().manual_seed(o.seed + 37)

    def loss(logits: Tensor, best: Tensor) -> Tensor:
        chosen = logits.detach().softmax(1).multinomial(1, generator=dice).squeeze(1)
        reward = (chosen == best).float()
        log = logits.log_softmax(1).gather(1, chosen.unsqueeze(1)).squeeze(1)
        return -((reward - reward.mean()) * log).mean()

    return Plan(
        seed=o.seed,
        models={"model": Arms(o)},
        x=(s,),
        y=best,
        held_x=(hs,),
        held_y=hbest,
        loss=loss,
        score=accuracy,
        chance=1 / 4,
        good=0.6,
        rate=4e-3,
        steps=200,
        size=96,
        hidden=("body.0", "body.2"),
        acts=("body.1", "body.3"),
        head="arms",
    )


class Pairs(nn.Module):
    """Two encoders whose outputs of one row should be alike, and unlike those of other rows."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(16, 48), o.activation(nn.ReLU), nn.Linear(48, 12))
        self.right = nn.Sequential(nn.Linear(16, 48), o.activation(nn.ReLU), nn.Linear(48, 12))

    def forward(self, x: Tensor) -> Tensor:
        a, b = F.normalize(self.left(x[:, :16]), dim=-1), F.normalize(self.right(x[:, 16:]), dim=-1)
        return a @ b.T / 0.2


def contrast(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    g = data.generator(o.seed)
    code = torch.randn(2000 + data.HELD, 6, generator=g)
    views = [torch.tanh(code @ torch.randn(6, 16, generator=g)) for _ in range(2)]
    x = torch.cat(views, 1) / torch.cat(views, 1).std()
    (x, y), (hx, hy) = data.split(x, torch.arange(len(x)))

    def loss(out: Tensor, rows: Tensor) -> Tensor:
        return F.cross_entropy(out, torch.arange(len(out)))

    def score(plan: Plan) -> float:
        """How often the partner is the nearest of the held-out rows."""
        out = outputs(plan)
        return (out.argmax(1) == torch.arange(len(out))).float().mean().item()

    return Plan(
        seed=o.seed,
        models={"model": Pairs(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=loss,
        score=score,
        chance=1 / data.HELD,
        good=0.15,
        rate=3e-3,
        steps=160,
        size=48,
        hidden=("left.0", "right.0"),
        acts=("left.1", "right.1"),
    )


_BASE = frozenset({"hidden", "acts", "head", "adam"})
_ROWS = _BASE | {"dense", "float"}
PROGRAMS = (
    Program("wide", "fit", _ROWS | {"classes", "norm", "output"}, wide),
    Program("words", "fit", _BASE | {"dense", "classes", "output", "tokens", "embedding"}, words),
    Program("groups", "check", _BASE | {"float", "classes", "output", "pictures"}, groups),
    Program("sorter", "fit", _ROWS - {"adam"} | {"classes", "sgd", "deepens", "output", "raw"}, sorter),
    Program("sizes", "fit", _ROWS | {"values", "deepens", "output", "raw"}, sizes),
    Program("densities", "check", _ROWS | {"raw"}, densities),
    Program("bandit", "fit", _ROWS - {"dense"} | {"policy"}, bandit),
    Program("contrast", "check", frozenset({"acts", "hidden", "float", "adam", "raw"}), contrast),
)
