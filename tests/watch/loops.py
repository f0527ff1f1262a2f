"""Training loops as people write them: each a function (seed) -> (models, train), where train(tell) runs the loop.

`STEPS` says how many steps each has, counted by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Train = Callable[[Callable[[float], Any]], None]
STEPS = 24


def batch(g: torch.Generator, rows: int = 16, width: int = 10):
    x = torch.randn(rows, width, generator=g)
    return x, (x[:, :3].sum(1) > 0).long()


def fit(model, g, tell, steps=STEPS, make=batch, forward=None, opt=None):
    opt = opt or torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    forward = forward or model
    for _ in range(steps):
        x, y = make(g)
        opt.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        opt.step()
        tell(loss.item())


def seeded(seed):
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed + 1)


def mlp(seed):
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    return [model], lambda tell: fit(model, g, tell)


def images(g):
    y = torch.randint(0, 3, (16,), generator=g)
    return torch.randn(16, 1, 8, 8, generator=g) + y[:, None, None, None].float(), y


def cnn_inplace(seed):
    """BatchNorm and an in-place ReLU, which full backward hooks would crash on."""
    g = seeded(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3),
        nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    return [model], lambda tell: fit(model, g, tell, make=images)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(5, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, x):
        return self.out(self.lstm(x.view(-1, 2, 5))[0][:, -1])


def lstm(seed):
    g = seeded(seed)
    model = Lstm()
    return [model], lambda tell: fit(model, g, tell)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 12)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def transformer(seed):
    g = seeded(seed)
    model = Tokens()

    def train(tell):
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(STEPS):
            t = torch.randint(0, 12, (8, 6), generator=g)
            opt.zero_grad()
            loss = F.cross_entropy(model(t).flatten(0, 1), (t + 1).flatten() % 12)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            tell(loss.item())

    return [model], train


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor


class Structured(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.body, self.head = kind, nn.Linear(10, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.body(x))
        logits = self.head(h)
        return {"tuple": (logits, h), "dict": {"logits": logits, "hidden": h}, "dataclass": Output(logits, h)}[
            self.kind
        ]


def structured(kind):
    def build(seed):
        g = seeded(seed)
        model = Structured(kind)
        pick = {"tuple": lambda o: o[0], "dict": lambda o: o["logits"], "dataclass": lambda o: o.logits}[kind]
        return [model], lambda tell: fit(model, g, tell, forward=lambda x: pick(model(x)))

    return build


class Pair:
    """Two optimizers behind one call."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for o in self.optimizers:
            o.zero_grad()

    def step(self):
        for o in self.optimizers:
            o.step()


def several_optimizers(seed):
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 2))

    def train(tell):
        pair = Pair(torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters(), lr=1e-2))
        fit(model, g, tell, opt=pair)

    return [model], train


def frozen(seed):
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    model[0].requires_grad_(False)
    return [model], lambda tell: fit(model, g, tell)


def accumulation(seed):
    """Four micro-batches an update; the loss is told once an update."""
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))

    def train(tell):
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(STEPS):
            opt.zero_grad()
            for _ in range(4):
                x, y = batch(g)
                loss = F.cross_entropy(model(x), y)
                (loss / 4).backward()
            opt.step()
            tell(loss.item())

    return [model], train


def scaler(seed):
    """The scaler's first scale overflows on purpose: skipped steps count as steps."""
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))

    def train(tell):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        for _ in range(STEPS):
            x, y = batch(g)
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(x).float(), y)
            grad_scaler.scale(loss).backward()
            grad_scaler.step(opt)
            grad_scaler.update()
            tell(loss.item())

    return [model], train


def no_optimizer(seed):
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))

    def train(tell):
        for _ in range(STEPS):
            x, y = batch(g)
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            tell(loss.item())

    return [model], train


def gan(seed):
    g = seeded(seed)
    gen = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    disc = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def train(tell):
        opt_g, opt_d = torch.optim.Adam(gen.parameters(), lr=1e-3), torch.optim.Adam(disc.parameters(), lr=1e-3)
        ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
        for _ in range(STEPS):
            real = torch.randn(16, 2, generator=g) + 2
            fake = gen(torch.randn(16, 4, generator=g))
            loss_d = F.binary_cross_entropy_with_logits(disc(real), ones)
            loss_d = loss_d + F.binary_cross_entropy_with_logits(disc(fake.detach()), zeros)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = F.binary_cross_entropy_with_logits(disc(fake), ones)
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            tell(loss_d.item() + loss_g.item())

    return [gen, disc], train


def evaluations(seed):
    """An evaluation with gradients off every fourth step, and one with gradients carelessly left on."""
    g = seeded(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))

    def train(tell):
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(STEPS):
            if step % 4 == 0:
                model.eval()
                with torch.no_grad():
                    model(batch(g)[0])
                model(100 * batch(g)[0])
                model.train()
            x, y = batch(g)
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            tell(loss.item())

    return [model], train


def compiled(seed):
    """Compiled without a code generator: what is watched is the traced graph all the same."""
    g = seeded(seed)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    quick = torch.compile(model, backend="aot_eager", fullgraph=True)
    return [model], lambda tell: fit(model, g, tell, forward=quick)


LOOPS = {
    "mlp": mlp,
    "cnn with batch norm and in-place relu": cnn_inplace,
    "lstm": lstm,
    "transformer": transformer,
    "tuple output": structured("tuple"),
    "dict output": structured("dict"),
    "dataclass output": structured("dataclass"),
    "several optimizers": several_optimizers,
    "frozen part": frozen,
    "gradient accumulation": accumulation,
    "grad scaler": scaler,
    "no torch.optim optimizer": no_optimizer,
    "gan": gan,
    "evaluations in between": evaluations,
    "compiled": compiled,
}
