"""What the corpus is made of: a plan of a training that switches may change, the labels, and the programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Record = Callable[[float], None]
Batch = tuple[tuple[Tensor, ...], Tensor]
Loop = Callable[["Plan", Record], None]


@dataclass(frozen=True)
class Label:
    """What a diagnosis should say. Several causes or failures mean that each of them is right.

    layers: names that are right, empty where no layer is to blame. onset: first and last right step.
    A healthy run has no cause, no failure, no layer and no onset.
    """

    causes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    onset: tuple[int, int] | None = None

    @property
    def healthy(self) -> bool:
        return not self.causes


HEALTHY = Label()


@dataclass(frozen=True)
class Options:
    """How a program is to be built: the seed, and what a switch changes before there is a model."""

    seed: int
    act: Callable[[], nn.Module] | None = None
    depth: int | None = None
    output: Callable[[], nn.Module] | None = None
    traits: frozenset[str] = frozenset()

    def activation(self, usual: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
        return (self.act or usual)()

    def layers(self, usual: int) -> int:
        return self.depth or usual

    def last(self) -> list[nn.Module]:
        """The extra output activation as a list of no or one module."""
        return [self.output()] if self.output else []

    def has(self, trait: str) -> bool:
        return trait in self.traits


@dataclass
class Plan:
    """One training, ready to run; switches edit it. Only `train` runs it.

    models: what is watched. x, y: the data, rows first; held_x, held_y: held out. chance and good: the score of a
    guess, and what a healthy run reaches at least. hidden, acts: names of weight layers before the head and of their
    activations, in forward order; head: name of the output layer. size: rows of a batch; micro: batches that are
    accumulated in a step. forward, loop: in the place of the only model's call and of `loops.supervised`. weight: what
    the loss is multiplied by at a step; clears: whether gradients are cleared at it; rates: factors of the rate.
    inputs, targets, batches: what happens to each batch; before, after: what happens around a step. owned: what the
    optimizer is given (None: all). info: what only some programs and their faults know.
    clip: limit of the gradient's norm; clipped: the parameters that are given to it (None: all).
    """

    seed: int
    models: dict[str, nn.Module]
    x: tuple[Tensor, ...]
    y: Tensor
    held_x: tuple[Tensor, ...]
    held_y: Tensor
    loss: Callable[[Any, Tensor], Tensor]
    score: Callable[[Plan], float]
    chance: float
    good: float
    rate: float = 3e-3
    optimizer: str = "adam"
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    steps: int = 120
    size: int = 32
    micro: int = 1
    clip: float | None = None
    clipped: Callable[[], Iterable[nn.Parameter]] | None = None
    full: bool = False  # the whole data set is each batch, as in a graph
    fixed_order: bool = False
    scaler: bool = False
    evaluate_every: int = 0
    hidden: tuple[str, ...] = ()
    acts: tuple[str, ...] = ()
    head: str = ""
    forward: Callable[..., Any] | None = None
    loop: Loop | None = None
    weight: Callable[[int], float] = lambda step: 1.0
    clears: Callable[[int], bool] = lambda step: True
    rates: list[Callable[[int], float]] = field(default_factory=list)
    inputs: list[Callable[[int, tuple[Tensor, ...]], tuple[Tensor, ...]]] = field(default_factory=list)
    targets: list[Callable[[int, Tensor], Tensor]] = field(default_factory=list)
    batches: list[Callable[[int, Batch], Batch]] = field(default_factory=list)
    before: list[Callable[[int, Any], None]] = field(default_factory=list)
    after: list[Callable[[int], None]] = field(default_factory=list)
    owned: Callable[[], Iterable[nn.Parameter]] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> nn.Module:
        return next(iter(self.models.values()))

    def module(self, name: str) -> nn.Module:
        """A module by the name that a diagnosis would give it."""
        if len(self.models) == 1:
            return self.model.get_submodule(name)
        first, _, rest = name.partition(".")
        return self.models[first].get_submodule(rest)

    def parameters(self) -> list[nn.Parameter]:
        return [p for m in self.models.values() for p in m.parameters()]

    def run(self, x: tuple[Tensor, ...]) -> Any:
        return self.forward(*x) if self.forward is not None else self.model(*x)

    def optimize(self, parameters: Iterable[nn.Parameter], rate: float | None = None) -> torch.optim.Optimizer:
        kinds: Mapping[str, Any] = {
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
            "sgd": torch.optim.SGD,
            "rmsprop": torch.optim.RMSprop,
        }
        found: torch.optim.Optimizer = kinds[self.optimizer](
            list(parameters), lr=self.rate if rate is None else rate, **self.optimizer_options
        )
        return found

    def factor(self, step: int) -> float:
        """What the schedules make of the rate at this step."""
        out = 1.0
        for schedule in self.rates:
            out *= schedule(step)
        return out

    def corrupted(self, step: int, batch: Batch) -> Batch:
        x, y = batch
        for change in self.inputs:
            x = change(step, x)
        for alter in self.targets:
            y = alter(step, y)
        batch = (x, y)
        for both in self.batches:
            batch = both(step, batch)
        return batch

    def train(self, record: Record) -> None:
        from benchmarks.corpus.loops import supervised

        (self.loop or supervised)(self, record)


@dataclass(frozen=True)
class Program:
    """A base program: its name, its part of the split, what it has (for switches to ask), and how it is built."""

    name: str
    split: str
    features: frozenset[str]
    make: Callable[[Options], Plan]


@dataclass(frozen=True)
class Switch:
    """A change of a program with a label: a fault, or a healthy variant.

    needs: features a program must have; a name with a leading "-" must be absent. options: what is changed before
    the model is built, by strength. apply: changes the plan and says what a diagnosis should say.
    """

    name: str
    apply: Callable[[Plan, int], Label]
    needs: frozenset[str] = frozenset()
    levels: int = 2
    options: Callable[[int], Mapping[str, Any]] = lambda level: {}
    late: bool = False

    def fits(self, program: Program) -> bool:
        absent = {n[1:] for n in self.needs if n.startswith("-")}
        present = {n for n in self.needs if not n.startswith("-")}
        return present <= program.features | {program.name} and not absent & (program.features | {program.name})
