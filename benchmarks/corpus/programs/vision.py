"""Programs on pictures: a small CNN, a residual net with or without norms, an autoencoder, a VAE."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy, outputs
from benchmarks.corpus.plan import Options, Plan, Program


class Cnn(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), o.activation(nn.ReLU)
        self.conv2, self.bn2, self.act2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), o.activation(nn.ReLU)
        self.drop = nn.Dropout(0.2 if o.has("dropout") else 0.0)
        self.fc = nn.Linear(16 * 4, 8)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        h = F.max_pool2d(self.act1(self.bn1(self.conv1(x))), 2)
        h = F.max_pool2d(self.act2(self.bn2(self.conv2(h))), 2)
        found: Tensor = self.out(self.fc(self.drop(h.flatten(1))))
        return found


def cnn(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.pictures(o.seed, 1200, 8))
    return Plan(
        seed=o.seed,
        models={"model": Cnn(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 8,
        good=0.6,
        rate=0.05,
        optimizer="sgd",
        optimizer_options={"momentum": 0.9},
        steps=100,
        hidden=("conv1", "conv2"),
        acts=("act1", "act2"),
        head="fc",
    )


class Block(nn.Module):
    def __init__(self, o: Options, width: int) -> None:
        super().__init__()
        bare = o.has("bare")
        self.norm1 = nn.Identity() if bare else nn.BatchNorm2d(width)
        self.conv1, self.act = nn.Conv2d(width, width, 3, padding=1), o.activation(nn.ReLU)
        self.norm2 = nn.Identity() if bare else nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        if bare:
            for conv in (self.conv1, self.conv2):
                nn.init.kaiming_normal_(conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.act(self.norm1(x)))
        found: Tensor = x + self.conv2(F.relu(self.norm2(h)))
        return found


class Residual(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 10, 3, padding=1)
        self.blocks = nn.ModuleList(Block(o, 10) for _ in range(o.layers(3)))
        self.head = nn.Linear(10 * 9, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        found: Tensor = self.head(F.adaptive_avg_pool2d(h, 3).flatten(1))
        return found


def residual(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.pictures(o.seed, 1000, 8, side=8))
    return Plan(
        seed=o.seed,
        models={"model": Residual(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=1 / 8,
        good=0.5,
        rate=3e-3,
        optimizer="adamw",
        steps=90,
        size=24,
        hidden=("stem", *(f"blocks.{i}.conv1" for i in range(o.layers(3)))),
        acts=tuple(f"blocks.{i}.act" for i in range(o.layers(3))),
        head="head",
        info={"blocks": tuple(f"blocks.{i}" for i in range(o.layers(3)))},
    )


def mean_error(plan: Plan) -> float:
    """The share of the inputs' variance that is rebuilt."""
    x = plan.held_x[0]
    return 1 - ((outputs(plan).reshape(x.shape) - x).pow(2).mean() / x.var()).item()


class Autoencoder(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 48), o.activation(nn.ReLU), nn.Linear(48, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 48), o.activation(nn.ReLU), nn.Linear(48, 24), *o.last())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.decoder(self.encoder(x))
        return found


def _itself(plan: Plan) -> None:
    """The target is the input as it came, also where a switch has changed it."""
    plan.batches.append(lambda step, batch: (batch[0], batch[0][0]))


def autoencoder(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x,), (hx,) = data.split(data.factors(o.seed, 1600, 24))
    plan = Plan(
        seed=o.seed,
        models={"model": Autoencoder(o)},
        x=(x,),
        y=x,
        held_x=(hx,),
        held_y=hx,
        loss=F.mse_loss,
        score=mean_error,
        chance=0.0,
        good=0.4,
        rate=4e-3,
        steps=180,
        size=48,
        hidden=("encoder.0", "decoder.0"),
        acts=("encoder.1", "decoder.1"),
        head="decoder.2",
    )
    _itself(plan)
    return plan


class Vae(nn.Module):
    """Encoder to mean and log-variance, decoder to a mean."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 40), o.activation(nn.Tanh))
        self.mean, self.spread = nn.Linear(40, 4), nn.Linear(40, 4)
        self.back = nn.Sequential(nn.Linear(4, 40), o.activation(nn.Tanh))
        self.image = nn.Linear(40, 20)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.body(x)
        mean, spread = self.mean(h), self.spread(h)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp() if self.training else mean
        return self.out(self.image(self.back(code))), mean, spread


def elbo(out: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    rebuilt, mean, spread = out
    divergence = 0.5 * (mean.pow(2) + spread.exp() - 1 - spread).sum(1).mean()
    return (rebuilt - x).pow(2).sum(1).mean() + 0.3 * divergence


def vae(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x,), (hx,) = data.split(data.factors(o.seed, 1600, 20))
    plan = Plan(
        seed=o.seed,
        models={"model": Vae(o)},
        x=(x,),
        y=x,
        held_x=(hx,),
        held_y=hx,
        loss=elbo,
        score=mean_error,
        chance=0.0,
        good=0.25,
        rate=4e-3,
        steps=160,
        size=48,
        hidden=("body.0", "back.0"),
        acts=("body.1", "back.1"),
        head="image",
    )
    _itself(plan)
    return plan


_BASE = frozenset({"hidden", "acts", "float", "head"})
PROGRAMS = (
    Program("cnn", "fit", _BASE | {"sgd", "classes", "norm", "dropout", "output", "pictures"}, cnn),
    Program("residual", "test", _BASE | {"adam", "classes", "norm", "pictures", "blocks"}, residual),
    Program("autoencoder", "fit", _BASE | {"adam", "dense", "rebuilds", "output", "raw"}, autoencoder),
    Program("vae", "test", _BASE | {"adam", "dense", "rebuilds", "output", "raw"}, vae),
)
