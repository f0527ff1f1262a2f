"""Dense programs: classifier, regressor, a tabular net with embeddings, a mixture of experts, a recommender."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy, explained
from benchmarks.corpus.plan import Options, Plan, Program


def _stack(o: Options, sizes: list[int], usual: type[nn.Module], dropout: float = 0.0) -> nn.Sequential:
    """Linear and activation in turn, named 0, 1, 2, ...; the head is not part of it."""
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), o.activation(usual)]
        if o.has("dropout") and dropout:
            parts.append(nn.Dropout(dropout))
    return nn.Sequential(*parts)


def _names(prefix: str, stack: nn.Sequential) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(weight layers, activations) of a stack by name."""
    weights = [i for i, m in enumerate(stack) if isinstance(m, nn.Linear)]
    return tuple(f"{prefix}{i}" for i in weights), tuple(f"{prefix}{i + 1}" for i in weights)


def mlp_classes(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.blobs(o.seed, 1600, 20, 6, 1.2))
    body = _stack(o, [20, *[48] * o.layers(2)], nn.ReLU, 0.2)
    model = nn.Sequential(*body, nn.Linear(48, 6), *o.last())
    hidden, acts = _names("", body)
    return Plan(
        seed=o.seed,
        models={"model": model},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 6,
        good=0.7,
        rate=3e-3,
        steps=150,
        hidden=hidden,
        acts=acts,
        head=str(len(body)),
    )


class Regressor(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.body = _stack(o, [8, *[64] * o.layers(2)], nn.Tanh, 0.1)
        self.head = nn.Linear(64, 1)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.head(self.body(x))).squeeze(-1)
        return found


def mlp_values(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.curve(o.seed, 2400, 8))
    model = Regressor(o)
    hidden, acts = _names("body.", model.body)
    return Plan(
        seed=o.seed,
        models={"model": model},
        x=(x,),
        y=y.squeeze(1),
        held_x=(hx,),
        held_y=hy.squeeze(1),
        loss=F.mse_loss,
        score=explained,
        chance=0.0,
        good=0.25,
        rate=0.05,
        optimizer="sgd",
        optimizer_options={"momentum": 0.9},
        steps=220,
        size=64,
        hidden=hidden,
        acts=acts,
        head="head",
    )


class Tabular(nn.Module):
    """Numbers through a batch norm, categories through embeddings, one logit out."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.shop, self.day = nn.Embedding(40, 6), nn.Embedding(7, 3)
        self.norm = nn.BatchNorm1d(10)
        self.fc1, self.act1 = nn.Linear(19, 48), o.activation(nn.ReLU)
        self.fc2, self.act2 = nn.Linear(48, 32), o.activation(nn.ReLU)
        self.drop = nn.Dropout(0.2 if o.has("dropout") else 0.0)
        self.logit = nn.Linear(32, 1)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor, shop: Tensor, day: Tensor) -> Tensor:
        h = torch.cat([self.norm(x), self.shop(shop), self.day(day)], 1)
        h = self.drop(self.act2(self.fc2(self.act1(self.fc1(h)))))
        found: Tensor = self.out(self.logit(h)).squeeze(-1)
        return found


def tabular(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    g = data.generator(o.seed + 1)
    x, target = data.curve(o.seed, 2400, 10)
    shop, day = torch.randint(0, 40, (len(x),), generator=g), torch.randint(0, 7, (len(x),), generator=g)
    effect = torch.randn(40, generator=g)
    y = (target.squeeze(1) + effect[shop] + x[:, 0] > 0).float()
    (x, shop, day, y), (hx, hshop, hday, hy) = data.split(x, shop, day, y)
    return Plan(
        seed=o.seed,
        models={"model": Tabular(o)},
        x=(x, shop, day),
        y=y,
        held_x=(hx, hshop, hday),
        held_y=hy,
        loss=F.binary_cross_entropy_with_logits,
        score=accuracy,
        chance=0.5,
        good=0.65,
        rate=4e-3,
        steps=160,
        size=64,
        hidden=("fc1", "fc2"),
        acts=("act1", "act2"),
        head="logit",
    )


class Mixture(nn.Module):
    """A router sends each row to its best expert; some experts may stay idle."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.router = nn.Linear(32, 6)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 32), o.activation(nn.GELU), nn.Linear(32, 32)) for _ in range(6)
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.enter(x))
        gate = self.router(h).softmax(-1)
        best = gate.argmax(-1)
        out = h.clone()
        for k, expert in enumerate(self.experts):
            rows = (best == k).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, gate[rows, k : k + 1] * expert(h[rows]))
        found: Tensor = self.head(out)
        return found


def mixture(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.blobs(o.seed, 1600, 16, 5, 1.2))
    return Plan(
        seed=o.seed,
        models={"model": Mixture(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.2,
        good=0.65,
        rate=3e-3,
        steps=120,
        size=48,
        hidden=("enter",),
        acts=(),
        head="head",
    )


class Tower(nn.Module):
    """Layers in a list, several outputs."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        sizes = [10, *[40] * o.layers(3)]
        self.fcs = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.acts = nn.ModuleList(o.activation(nn.ReLU) for _ in self.fcs)
        self.head = nn.Linear(40, 3)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        for fc, act in zip(self.fcs, self.acts, strict=True):
            x = act(fc(x))
        found: Tensor = self.out(self.head(x))
        return found


def tower(o: Options, optimizer: str = "adam", rate: float = 2e-3) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.curve(o.seed, 2400, 10, 3))
    return Plan(
        seed=o.seed,
        models={"model": Tower(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.mse_loss,
        score=explained,
        chance=0.0,
        good=0.25,
        rate=rate,
        optimizer=optimizer,
        optimizer_options={"momentum": 0.9} if optimizer == "sgd" else {},
        steps=200,
        size=48,
        hidden=tuple(f"fcs.{i}" for i in range(o.layers(3))),
        acts=tuple(f"acts.{i}" for i in range(o.layers(3))),
        head="head",
    )


def tower_sgd(o: Options) -> Plan:
    return tower(o, "sgd", 0.05)


class Stream(nn.Module):
    """A dense residual stream, normed in each block unless it is "bare"."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.enter = nn.Linear(12, 32)
        norm = nn.Identity if o.has("bare") else (lambda: nn.LayerNorm(32))
        self.blocks = nn.ModuleList(
            nn.Sequential(norm(), nn.Linear(32, 32), o.activation(nn.ReLU), nn.Linear(32, 32))
            for _ in range(o.layers(3))
        )
        if o.has("bare"):
            for module in self.blocks.modules():
                if isinstance(module, nn.Linear):
                    nn.init.kaiming_normal_(module.weight)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        for block in self.blocks:
            h = h + block(h)
        found: Tensor = self.head(h)
        return found


def stream(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.blobs(o.seed, 1600, 12, 5, 1.0))
    blocks = range(o.layers(3))
    return Plan(
        seed=o.seed,
        models={"model": Stream(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.2,
        good=0.65,
        rate=2e-3,
        steps=130,
        hidden=("enter", *(f"blocks.{i}.1" for i in blocks)),
        acts=tuple(f"blocks.{i}.2" for i in blocks),
        head="head",
        info={"blocks": tuple(f"blocks.{i}" for i in blocks)},
    )


class Recommender(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(60, 12), nn.Embedding(40, 12)
        self.mix = nn.Sequential(nn.Linear(36, 48), o.activation(nn.ReLU), nn.Linear(48, 24), o.activation(nn.ReLU))
        self.score = nn.Linear(24, 1)
        self.out = nn.Sequential(*o.last())

    def forward(self, u: Tensor, i: Tensor) -> Tensor:
        a, b = self.user(u), self.item(i)
        found: Tensor = self.out(self.score(self.mix(torch.cat([a, b, a * b], 1)))).squeeze(-1)
        return found


def recommender(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (u, i, y), (hu, hi, hy) = data.split(*data.ratings(o.seed, 9000, 60, 40))
    return Plan(
        seed=o.seed,
        models={"model": Recommender(o)},
        x=(u, i),
        y=y,
        held_x=(hu, hi),
        held_y=hy,
        loss=F.binary_cross_entropy_with_logits,
        score=accuracy,
        chance=0.5,
        good=0.65,
        rate=1e-2,
        steps=200,
        size=96,
        hidden=("mix.0", "mix.2"),
        acts=("mix.1", "mix.3"),
        head="score",
    )


_DENSE = frozenset({"dense", "hidden", "acts", "adam", "float", "head"})
PROGRAMS = (
    Program("mlp_classes", "fit", _DENSE | {"classes", "deepens", "output", "dropout", "raw"}, mlp_classes),
    Program(
        "mlp_values", "check", _DENSE - {"adam"} | {"values", "sgd", "deepens", "output", "raw", "scalar"}, mlp_values
    ),
    Program("tabular", "check", _DENSE | {"binary", "norm", "output", "embedding", "dropout", "scalar"}, tabular),
    Program("mixture", "test", frozenset({"dense", "hidden", "adam", "float", "head", "classes", "raw"}), mixture),
    Program("tower", "test", _DENSE | {"values", "deepens", "output", "raw"}, tower),
    Program("tower_sgd", "test", _DENSE - {"adam"} | {"values", "sgd", "deepens", "output", "raw"}, tower_sgd),
    Program("stream", "fit", _DENSE | {"classes", "blocks"}, stream),
    Program(
        "recommender", "fit", _DENSE - {"float"} | {"binary", "output", "embedding", "tokens", "scalar"}, recommender
    ),
)
