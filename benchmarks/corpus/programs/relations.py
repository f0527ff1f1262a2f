"""Programs on pairs, graphs and adversaries: a siamese net, a graph net, GANs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy, rows
from benchmarks.corpus.plan import Options, Plan, Program, Record


class Siamese(nn.Module):
    """One tower for both sides; the logit falls with the distance of the two codes."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.guard = 0.0 if o.has("bare_root") else 1e-6
        self.tower = nn.Sequential(nn.Linear(16, 40), o.activation(nn.ReLU), nn.Linear(40, 12))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.shift = nn.Parameter(torch.tensor(1.5))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        distance = ((self.tower(a) - self.tower(b)).pow(2).sum(1) + self.guard).sqrt()
        found: Tensor = self.shift - self.scale * distance
        return found


def siamese(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    x, kind = data.blobs(o.seed, 2600, 16, 4, 0.8)
    half = len(x) // 2
    same = torch.arange(half) % 2 == 0
    g = data.generator(o.seed + 3)
    pick = torch.stack(
        [
            (((kind == kind[i]) == bool(same[i])).float()).multinomial(1, generator=g).squeeze(0)
            for i in torch.arange(half)
        ]
    )
    a, b, y = x[:half], x[pick], (kind[:half] == kind[pick]).float()
    (a, b, y), (ha, hb, hy) = data.split(a, b, y)
    return Plan(
        seed=o.seed,
        models={"model": Siamese(o)},
        x=(a, b),
        y=y,
        held_x=(ha, hb),
        held_y=hy,
        loss=F.binary_cross_entropy_with_logits,
        score=accuracy,
        chance=0.5,
        good=0.7,
        rate=4e-3,
        steps=130,
        hidden=("tower.0",),
        acts=("tower.1",),
        head="tower.2",
    )


class GraphLayer(nn.Module):
    def __init__(self, inp: int, out: int, o: Options) -> None:
        super().__init__()
        self.lin, self.guarded = nn.Linear(inp, out), not o.has("bare_degree")

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Mean over the neighbours."""
        degree = edges.sum(1, keepdim=True)
        if self.guarded:
            degree = degree.clamp(min=1)
        found: Tensor = self.lin((edges @ x) / degree)
        return found


class Gcn(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.conv1, self.act1 = GraphLayer(12, 32, o), o.activation(nn.ReLU)
        self.conv2, self.act2 = GraphLayer(32, 24, o), o.activation(nn.ReLU)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.act2(self.conv2(self.act1(self.conv1(x, edges)), edges))
        found: Tensor = self.head(h)
        return found


def gcn(o: Options) -> Plan:
    """Node classification on one graph: the same full batch in every step."""
    torch.manual_seed(o.seed)
    g = data.generator(o.seed)
    y = torch.randint(0, 4, (240,), generator=g)
    x = torch.randn(4, 12, generator=g)[y] + 1.5 * torch.randn(240, 12, generator=g)
    chance = torch.where(y[:, None] == y[None], 0.08, 0.01)
    edges = (torch.rand(240, 240, generator=g) < chance).float()
    edges = ((edges + edges.t() + torch.eye(240)) > 0).float()
    known = torch.arange(240) < 160

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out[known], target[known])

    return Plan(
        seed=o.seed,
        models={"model": Gcn(o)},
        x=(x, edges),
        y=y,
        held_x=(x, edges),
        held_y=y,
        loss=loss,
        score=accuracy,
        chance=0.25,
        good=0.6,
        rate=1e-2,
        steps=100,
        full=True,
        hidden=("conv1.lin", "conv2.lin"),
        acts=("act1", "act2"),
        head="head",
    )


def _gan_score(plan: Plan) -> float:
    """How near the mean and spread of generated points come to the data's, 1 at best."""
    gen = plan.models["gen"]
    was = gen.training
    gen.eval()
    with torch.no_grad():
        fake = gen(torch.randn(256, 8, generator=torch.Generator().manual_seed(5)))
    gen.train(was)
    real = plan.held_x[0]
    gap = (fake.mean(0) - real.mean(0)).pow(2).mean() + (fake.std(0) - real.std(0)).pow(2).mean()
    return 1 - float(gap / real.pow(2).mean())


def adversarial(plan: Plan, record: Record) -> None:
    """A discriminator's step and a generator's step in turn; the loss told is the generator's."""
    gen, disc = plan.models["gen"], plan.models["disc"]
    g = torch.Generator().manual_seed(plan.seed + 23)
    push: float = plan.info.get("disc_push", 1.0)
    saturating: bool = plan.info.get("saturating", False)
    gen_opt = plan.optimize(gen.parameters())
    disc_opt = plan.optimize(disc.parameters())
    stream = rows(plan)
    for step in range(plan.steps):
        for optimizer, times in ((gen_opt, 1.0), (disc_opt, push)):
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * plan.factor(step) * times
        for act in plan.before:
            act(step, disc_opt)
        picked = next(stream)
        (real,), _ = plan.corrupted(step, ((plan.x[0][picked],), plan.y[picked]))
        for _ in range(plan.info.get("disc_steps", 1)):
            fake = gen(torch.randn(len(real), 8, generator=g)).detach()
            loss = _told(disc(real), True) + _told(disc(fake), False)
            if plan.clears(step):
                disc_opt.zero_grad()
            loss.backward()
            disc_opt.step()
        out = disc(gen(torch.randn(len(real), 8, generator=g)))
        loss = _saturating(out) if saturating else _told(out, True)
        loss = loss * plan.weight(step)
        if plan.clears(step):
            gen_opt.zero_grad()
        loss.backward()
        gen_opt.step()
        for late in plan.after:
            late(step)
        record(loss.item())


def _told(out: Tensor, truth: bool) -> Tensor:
    target = torch.full_like(out, 1.0 if truth else 0.0)
    probability = bool(((out >= 0) & (out <= 1)).all()) and getattr(out.grad_fn, "name", str)() == "SigmoidBackward0"
    if probability:
        return F.binary_cross_entropy(out, target)
    return F.binary_cross_entropy_with_logits(out, target)


def _saturating(out: Tensor) -> Tensor:
    """The first GAN's generator loss, log(1 - D)."""
    return torch.log(1 - out + 1e-7).mean()


def _gan(o: Options, gen: nn.Module, disc: nn.Module, width: int, rate: float) -> Plan:
    (x,), (hx,) = data.split(0.5 * data.factors(o.seed, 1500, width, 2) + 1.0)
    return Plan(
        seed=o.seed,
        models={"gen": gen, "disc": disc},
        x=(x,),
        y=torch.zeros(len(x)),
        held_x=(hx,),
        held_y=torch.zeros(len(hx)),
        loss=lambda out, y: _told(out, True),
        score=_gan_score,
        chance=0.0,
        good=0.5,
        rate=rate,
        optimizer_options={"betas": (0.5, 0.99)},
        steps=180,
        size=48,
        loop=adversarial,
        hidden=("gen.0", "disc.0"),
        acts=("gen.1", "disc.1"),
        head="",
        info={"prob": "disc." + str(len(list(disc.children())) - 1)},
    )


def gan(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    gen = nn.Sequential(nn.Linear(8, 48), o.activation(nn.ReLU), nn.Linear(48, 6))
    last: list[Any] = [nn.Sigmoid()] if o.has("prob") else []
    disc = nn.Sequential(nn.Linear(6, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1), *last)
    return _gan(o, gen, disc, 6, 2e-3)


def gan_wide(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    gen = nn.Sequential(
        nn.Linear(8, 64), o.activation(nn.ReLU), nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12)
    )
    last: list[Any] = [nn.Sigmoid()] if o.has("prob") else []
    drop = nn.Dropout(0.2)
    disc = nn.Sequential(nn.Linear(12, 64), nn.LeakyReLU(0.2), drop, nn.Linear(64, 1), *last)
    return _gan(o, gen, disc, 12, 2e-3)


_BASE = frozenset({"adam", "hidden", "acts", "float"})
PROGRAMS = (
    Program("siamese", "test", _BASE | {"binary", "pairs", "head", "raw"}, siamese),
    Program("gcn", "check", _BASE | {"classes", "graph", "head", "raw"}, gcn),
    Program("gan", "fit", frozenset({"adversarial", "adam", "float"}), gan),
    Program("gan_wide", "test", frozenset({"adversarial", "adam", "float"}), gan_wide),
)
