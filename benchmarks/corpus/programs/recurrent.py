"""Recurrent programs: an LSTM and a GRU classifier, and plain recurrences that must remember."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import accuracy
from benchmarks.corpus.plan import Options, Plan, Program


class Sequence(nn.Module):
    """A recurrence over a sequence and a head on its last state."""

    def __init__(self, kind: str, width: int, hidden: int, classes: int, o: Options) -> None:
        super().__init__()
        if kind == "lstm":
            self.rnn: nn.RNNBase = nn.LSTM(width, hidden, batch_first=True)
        elif kind == "gru":
            self.rnn = nn.GRU(width, hidden, batch_first=True)
        else:
            self.rnn = nn.RNN(width, hidden, batch_first=True, nonlinearity=kind)
            nn.init.orthogonal_(self.rnn.get_parameter("weight_hh_l0"))
        self.head = nn.Linear(hidden, classes)
        self.out = nn.Sequential(*o.last())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.head(self.rnn(x)[0][:, -1]))
        return found


def lstm(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.waves(o.seed, 1200, 12, 4))
    return Plan(
        seed=o.seed,
        models={"model": Sequence("lstm", 2, 24, 4, o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.25,
        good=0.6,
        rate=1e-2,
        steps=130,
        hidden=("rnn",),
        head="head",
    )


class Words(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.fc, self.act = nn.Linear(24, 24), o.activation(nn.ReLU)
        self.drop = nn.Dropout(0.2 if o.has("dropout") else 0.0)
        self.out = nn.Linear(24, 4)

    def forward(self, t: Tensor) -> Tensor:
        found: Tensor = self.out(self.drop(self.act(self.fc(self.gru(self.embed(t))[0].mean(1)))))
        return found


def gru(o: Options) -> Plan:
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.tokens(o.seed, 1200, 12, 60, 4))
    return Plan(
        seed=o.seed,
        models={"model": Words(o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.25,
        good=0.6,
        rate=5e-3,
        steps=110,
        hidden=("fc",),
        acts=("act",),
        head="out",
    )


def _remember(kind: str, length: int, rate: float, o: Options) -> Plan:
    torch.manual_seed(o.seed)
    kind = "relu" if o.has("unbounded") else kind
    (x, y), (hx, hy) = data.split(*data.memory(o.seed, 1200, o.layers(length), 4))
    return Plan(
        seed=o.seed,
        models={"model": Sequence(kind, 4, 32, 4, o)},
        x=(x,),
        y=y,
        held_x=(hx,),
        held_y=hy,
        loss=F.cross_entropy,
        score=accuracy,
        chance=0.25,
        good=0.6,
        rate=rate,
        optimizer="rmsprop" if kind == "relu" else "adam",
        steps=110,
        clip=1.0 if kind == "tanh" else None,
        hidden=("rnn",),
        head="head",
    )


def rnn_tanh(o: Options) -> Plan:
    return _remember("tanh", 20, 2e-3, o)


def rnn_relu(o: Options) -> Plan:
    return _remember("relu", 16, 1e-3, o)


_BASE = frozenset({"adam", "head", "classes", "hidden"})
PROGRAMS = (
    Program("lstm", "fit", _BASE | {"float", "gated", "output", "sequence"}, lstm),
    Program("gru", "check", _BASE | {"tokens", "acts", "embedding", "dropout", "gated", "sequence"}, gru),
    Program("rnn_relu", "fit", _BASE | {"float", "recurrent", "sequence"}, rnn_relu),
    Program("rnn_tanh", "test", _BASE | {"float", "recurrent", "sequence"}, rnn_tanh),
)
