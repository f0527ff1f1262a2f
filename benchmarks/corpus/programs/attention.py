"""Transformers: a post-norm encoder with warm-up that classifies, and a pre-norm causal language model."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy
from benchmarks.corpus.plan import Options, Plan, Program


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, o: Options) -> None:
        super().__init__()
        self.heads, self.unscaled = heads, o.has("unscaled")
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        if self.unscaled:
            nn.init.normal_(self.qkv.weight, std=5.0 / math.sqrt(width))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, t, w = x.shape
        q, k, v = (z.view(b, t, self.heads, w // self.heads).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1)
        if not self.unscaled:
            scores = scores / math.sqrt(w // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        found: Tensor = self.proj((self.softmax(scores) @ v).transpose(1, 2).reshape(b, t, w))
        return found


class Layer(nn.Module):
    def __init__(self, width: int, post: bool, o: Options) -> None:
        super().__init__()
        self.post = post
        self.attn, self.norm1, self.norm2 = Attention(width, 4, o), nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.act, self.fc2 = nn.Linear(width, 2 * width), o.activation(nn.GELU), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1 if o.has("dropout") else 0.0)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        found: Tensor
        if self.post:
            x = self.norm1(x + self.drop(self.attn(x, mask)))
            found = self.norm2(x + self.drop(self.fc2(self.act(self.fc1(x)))))
            return found
        x = x + self.drop(self.attn(self.norm1(x), mask))
        found = x + self.drop(self.fc2(self.act(self.fc1(self.norm2(x)))))
        return found


class Encoder(nn.Module):
    """Token 0 is padding; it is hidden from the others."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(41, 24), nn.Parameter(0.1 * torch.randn(12, 24))
        self.layers = nn.ModuleList(Layer(24, True, o) for _ in range(o.layers(3)))
        self.head = nn.Linear(24, 4)
        self.out = nn.Sequential(*o.last())

    def forward(self, t: Tensor) -> Tensor:
        mask = (t == 0)[:, None, None, :]
        h = self.embed(t) + self.place
        for layer in self.layers:
            h = layer(h, mask)
        found: Tensor = self.out(self.head(h.mean(1)))
        return found


def encoder(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    t, y = data.tokens(o.seed, 1200, 12, 40, 4)
    t = t + 1
    t[:, 10:] *= (torch.rand(len(t), 2, generator=data.generator(o.seed + 5)) < 0.7).long()
    (t, y), (ht, hy) = data.split(t, y)
    plan = Plan(
        seed=o.seed,
        models={"model": Encoder(o)},
        x=(t,),
        y=y,
        held_x=(ht,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.25,
        good=0.6,
        rate=3e-3,
        steps=110,
        hidden=tuple(f"layers.{i}.fc1" for i in range(o.layers(3))),
        acts=tuple(f"layers.{i}.act" for i in range(o.layers(3))),
        head="head",
        info={"softmax": tuple(f"layers.{i}.attn.softmax" for i in range(o.layers(3)))},
    )
    if not o.has("cold"):
        plan.rates.append(lambda step: min(1.0, (step + 1) / 25))
    return plan


class Decoder(nn.Module):
    """Token 0 is padding, which the data here does not have."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(25, 24), nn.Embedding(12, 24)
        self.layers = nn.ModuleList(Layer(24, False, o) for _ in range(o.layers(2)))
        self.norm = nn.LayerNorm(24)
        self.lm_head = nn.Linear(24, 25, bias=False)
        if o.has("tied"):
            nn.init.normal_(self.embed.weight, std=0.2)
            self.lm_head.weight = self.embed.weight
        self.out = nn.Sequential(*o.last())

    def forward(self, t: Tensor) -> Tensor:
        length = t.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1) | (t == 0)[:, None, None, :]
        h = self.embed(t) + self.place.weight[:length]
        for layer in self.layers:
            h = layer(h, mask)
        found: Tensor = self.out(self.lm_head(self.norm(h)))
        return found


def token_loss(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def decoder(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (t,), (ht,) = data.split(1 + data.language(o.seed, 1200, 12, 24))
    plan = Plan(
        seed=o.seed,
        models={"model": Decoder(o)},
        x=(t[:, :-1],),
        y=t[:, 1:],
        held_x=(ht[:, :-1],),
        held_y=ht[:, 1:],
        loss=token_loss,
        score=accuracy,
        chance=1 / 24,
        good=0.3,
        rate=4e-3,
        optimizer="adamw",
        steps=110,
        clip=1.0,
        hidden=tuple(f"layers.{i}.fc1" for i in range(o.layers(2))),
        acts=tuple(f"layers.{i}.act" for i in range(o.layers(2))),
        head="lm_head",
        info={"softmax": tuple(f"layers.{i}.attn.softmax" for i in range(o.layers(2)))},
    )
    if not o.has("cold"):
        plan.rates.append(lambda step: min(1.0, (step + 1) / 10))
    return plan


_BASE = frozenset(
    {"adam", "head", "classes", "hidden", "acts", "tokens", "attention", "dropout", "output", "embedding"}
)
PROGRAMS = (
    Program("encoder", "fit", _BASE | {"padding", "post_norm"}, encoder),
    Program("decoder", "test", _BASE | {"ties", "padding"}, decoder),
)
