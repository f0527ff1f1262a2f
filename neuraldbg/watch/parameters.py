"""Gradients, updates and ownership of the watched parameters, with bounded copies."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.record import OptimizerFacts, ParameterFacts, ParameterStats
from neuraldbg.watch.host import is_measurable, shard
from neuraldbg.watch.measure import flat_sample, norms

SAMPLE = 16384  # elements of one tensor that updates are read from
DEEPER = 3  # matrices: two that start at zero are a pair of factors, a fault of its own
COSINE_SAMPLE = 1024  # elements of one tensor in the gradient's direction


@dataclass
class Watched:
    """One parameter and what is remembered of it between signals."""

    name: str
    module: str
    ref: weakref.ref[Tensor]
    facts: ParameterFacts
    owner: int | None = None
    grad_norm: Tensor | None = None  # at the end of the last backward pass, pre-clip
    consumed_norm: Tensor | None = None  # the same when its owner stepped
    used_norm: Tensor | None = None  # as its owner took it, where it and others were not written to alike since
    writes: int = 0  # how often it was written to in between
    mark: tuple[int, int] | None = None  # identity and version of the gradient when it was consumed
    ended: tuple[int, int] | None = None  # the same at the end of the last backward pass
    tainted: bool = False  # its gradient contains one that was consumed before
    carried: bool = False
    usual: bool = False  # its gradient was a plain tensor when it was last looked at in full
    previous: Tensor | None = None
    start_rms: float | None = None
    gone: bool = False  # no longer part of its model


@dataclass
class Owner:
    """An optimizer that stepped, weakly held, and which parameters it holds."""

    ref: weakref.ref[Any]
    facts: OptimizerFacts
    members: list[int] = field(default_factory=list)
    groups: int = 0
    retired: bool = False


class ParameterWatch:
    """All trainable and frozen parameters of the session's models."""

    def __init__(self, budget: int) -> None:
        self.items: list[Watched] = []
        self.index: dict[int, int] = {}
        self.owners: list[Owner] = []
        self.budget = budget
        self.cosine_before: Tensor | None = None
        self.pointing: Tensor | None = None
        self.snapshot_step: int | None = None
        self.most = SAMPLE
        self.lazy = False  # whether parameters still wait for their shape
        self.alike: list[int] = []  # matrices whose units started equal
        self.zeros: list[int] = []  # the same, all zero: one factor of an adapter, or the end of a branch, on purpose
        self.sharded = False  # whether some are spread over ranks: then only this rank's part is measured
        self.left_out: dict[str, str] = {}  # parameters that cannot be measured, by name, with what they are

    def add(self, model: nn.Module, modules: dict[int, str]) -> None:
        """Take in a model's parameters that are not known yet; `modules` maps id(module) to its name."""
        self.lazy = False
        for module_name, module in model.named_modules(remove_duplicate=True):
            for name, p in module.named_parameters(recurse=False):
                if isinstance(p, nn.parameter.UninitializedParameter):
                    self.lazy = True
                    continue
                if id(p) in self.index:
                    continue
                x = shard(p)
                if not has_part(p):
                    self.left_out.setdefault(f"{module_name}.{name}".lstrip("."), _what(p))
                    continue
                self.sharded = self.sharded or x is not p
                self.index[id(p)] = len(self.items)
                if p.requires_grad and x is p and (equal := units_alike(x)) is not None:
                    (self.alike if equal else self.zeros).append(len(self.items))
                start = x.detach().float() if x.numel() else None
                facts = ParameterFacts(
                    mean=float(start.mean()) if start is not None and p.dim() == 1 else None,
                    name=name,
                    module=module_name,
                    numel=x.numel(),
                    dims=p.dim(),
                    dtype=str(p.dtype).removeprefix("torch."),
                    trainable=p.requires_grad,
                )
                self.items.append(Watched(name, modules.get(id(module), module_name), weakref.ref(p), facts))
        total = sum(min(w.facts.numel, SAMPLE) for w in self.items) or 1
        self.most = SAMPLE if total * 4 <= self.budget else max(16, int(SAMPLE * self.budget / (total * 4)))

    def replace(self, i: int, p: Tensor) -> None:
        """Another tensor stands in the place of parameter i."""
        w = self.items[i]
        w.ref, w.previous, w.mark, w.ended, w.tainted = weakref.ref(p), None, None, None, False
        w.facts = replace(w.facts, numel=shard(p).numel())
        self.sharded = self.sharded or shard(p) is not p
        self.index = {k: n for k, n in self.index.items() if n != i} | {id(p): i}

    def forget_owners(self) -> None:
        """Let every optimizer's parameters be read anew when it steps, for some were replaced."""
        self.index = {id(p): i for i, w in enumerate(self.items) if (p := w.ref()) is not None and not w.gone}
        for w in self.items:
            w.owner = None
        for owner in self.owners:
            owner.groups = -1

    def notes(self) -> list[str]:
        """What the numbers do not cover: one sentence each."""
        parts = ["parameters are sharded: weights and gradients are those of this rank's part"] if self.sharded else []
        if not self.left_out:
            return parts
        first, kind = next(iter(self.left_out.items()))
        others = f" and {len(self.left_out) - 1} more" if len(self.left_out) > 1 else ""
        return [*parts, f"parameter {first!r} ({kind}){others} cannot be measured and is not watched"]

    def live(self) -> list[tuple[Watched, Tensor]]:
        """Parameters that are still there; of a sharded one `shard` gives what can be measured."""
        return [(w, p) for w in self.items if (p := w.ref()) is not None and not w.gone]

    def trained(self) -> list[tuple[Watched, Tensor]]:
        """Those that can get a gradient now: one that was frozen may still carry an old one."""
        return [(w, p) for w, p in self.live() if p.requires_grad]

    # --- gradients -----------------------------------------------------------------------------

    def begin_backward(self) -> None:
        """Before backward: which buffers still hold a gradient that an optimizer has consumed.

        Version counters tell whether a buffer was zeroed since, but not through `.data`; so a suspicion is checked
        once against the values, which is the only case in which this reads from the device.
        """
        suspects: list[tuple[Watched, Tensor]] = []
        for w, p in self.live():
            g = gradient_of(p)
            here = None if g is None else (id(g), g._version)
            if here is None or not (here == w.mark or (w.tainted and here == w.ended)):
                w.tainted = False
            elif g is not None and not w.tainted:
                suspects.append((w, g))
            w.mark = None
        if suspects and bool(torch.stack(norms([g.detach() for _, g in suspects])).amax() > 0):
            for w, _ in suspects:
                w.tainted = True

    def end_backward(self) -> list[Tensor]:
        """After backward: the norm of every gradient, one fused call; returned as scalars on the device."""
        found = [(w, g) for w, p in self.trained() if (g := gradient_of(p)) is not None and g.numel()]
        for w in self.items:
            w.grad_norm = None
        scalars = norms([g.detach() for _, g in found]) if found else []
        for (w, g), n in zip(found, scalars, strict=True):
            w.grad_norm, w.ended, w.usual = n, (id(g), g._version), type(g) is Tensor and is_measurable(g)
        return scalars

    def quick_norm(self) -> Tensor | None:
        """The global gradient norm alone (the cheap sentinel of steps that are not sampled)."""
        grads = []
        for w, p in self.trained():
            g = p.grad
            if g is not None and not (w.usual and type(g) is Tensor):
                g = gradient_of(p)
            if g is not None and g.numel():
                grads.append(g)
        return torch.linalg.vector_norm(torch.stack(norms(grads))) if grads else None

    # --- optimizers ----------------------------------------------------------------------------

    def owner_of(self, optimizer: Any) -> int | None:
        """The optimizer's number, if it holds a watched parameter; its facts are read when its groups change."""
        for k, known in enumerate(self.owners):
            held_by = known.ref()
            if held_by is not None and held_by is optimizer:
                if known.groups != sum(len(g["params"]) for g in held_by.param_groups):
                    self._read(k, optimizer)
                return k
        held = [i for g in optimizer.param_groups for p in g["params"] if (i := self.index.get(id(p))) is not None]
        if not held:
            return None
        self.owners.append(Owner(weakref.ref(optimizer), OptimizerFacts(type(optimizer).__name__, ())))
        self._read(len(self.owners) - 1, optimizer, met=True)
        return len(self.owners) - 1

    def retire(self, k: int) -> set[int]:
        """Let go of optimizers whose place number k has taken: they are gone, or it holds all of their parameters."""
        mine = set(self.owners[k].members)
        gone = {j for j, o in enumerate(self.owners) if j != k and (o.ref() is None or mine >= set(o.members))}
        for j in gone:  # read anew, should it step again
            self.owners[j] = Owner(self.owners[j].ref, self.owners[j].facts, groups=-1, retired=True)
        return gone

    def _read(self, k: int, optimizer: Any, met: bool = False) -> None:
        groups = optimizer.param_groups
        members = [i for g in groups for p in g["params"] if (i := self.index.get(id(p))) is not None]
        first = groups[0]
        for i in members:
            self.items[i].owner = k
        momentum = first.get("momentum", first.get("betas", (0.0,))[0])
        known = self.owners[k].facts
        self.owners[k] = Owner(
            ref=self.owners[k].ref,
            facts=OptimizerFacts(
                kind=type(optimizer).__name__,
                rates=rates_of(optimizer),
                eps=_number(first.get("eps")),
                weight_decay=_number(first.get("weight_decay")) or 0.0,
                momentum=_number(momentum) or 0.0,
                parameters=len(members),
                fresh=starts_afresh(optimizer) if met else known.fresh,
                first_rate=_at_first_rate(first) if met else known.first_rate,
            ),
            members=members,
            groups=sum(len(g["params"]) for g in groups),
        )

    def consumed(self, k: int) -> None:
        """An optimizer stepped: what it used, and the mark by which a second use is known."""
        met: list[tuple[Watched, Tensor]] = []
        for i in self.owners[k].members:
            w = self.items[i]
            p = w.ref()
            w.consumed_norm, w.used_norm, w.writes = w.grad_norm, None, 0
            g = None if p is None else p.grad
            if p is not None and not (w.usual and type(g) is Tensor):
                g = gradient_of(p)
            if g is None:
                w.mark = None
                continue
            w.carried = w.carried or w.tainted
            w.mark = (id(g), g._version)
            if w.grad_norm is not None and w.ended is not None and not g.is_sparse:
                w.writes = _writes(w.ended, w.mark)
                met.append((w, g))
        _measure_used(met)

    def rates(self, used: Mapping[int, tuple[float, ...]]) -> tuple[float, ...]:
        """All learning rates: `used` where an optimizer stepped, those of now where it did not."""
        held = [(used.get(k), o.ref()) for k, o in enumerate(self.owners) if not o.retired]
        return tuple(r for known, o in held for r in (known if known is not None else rates_of(o) if o else ()))

    # --- weights -------------------------------------------------------------------------------

    def snapshot(self, step: int) -> None:
        """Copy the watched elements of every trainable parameter, unless the last step's are still there."""
        if self.snapshot_step != step:
            for w, p in self.live():
                w.previous = flat_sample(shard(p), self.most) if p.requires_grad and p.numel() else None
            self.snapshot_step = step

    def moved(self) -> bool:
        """Whether any watched element differs from the snapshot (asked only while no optimizer was seen)."""
        pairs = [(w.previous, flat_sample(shard(p), self.most)) for w, p in self.live() if w.previous is not None]
        return any(not torch.equal(a, b) for a, b in pairs if a.shape == b.shape)

    def measure(self, step: int) -> tuple[list[int], list[Tensor]]:
        """After the step: (indices, scalars) of weight norms, then update norms; the copies move on."""
        now = [
            (i, flat_sample(shard(p), self.most))
            for i, w in enumerate(self.items)
            if (p := w.ref()) is not None and p.numel() and not w.gone
        ]
        if not now:
            return [], []
        weights = norms([x for _, x in now])
        updates = []
        for i, x in now:
            before = self.items[i].previous
            updates.append(x - before if before is not None and before.shape == x.shape else x.new_full((1,), math.nan))
            self.items[i].previous = x if self.items[i].facts.trainable else None
        self.snapshot_step = step + 1
        return [i for i, _ in now], weights + norms(updates)

    def direction(self) -> None:
        """Remember where this backward pass points, on a sample of the weight tensors."""
        parts = [
            flat_sample(g, COSINE_SAMPLE)
            for _, p in self.trained()
            if p.dim() > 1 and p.numel() and (g := gradient_of(p)) is not None and not g.is_sparse
        ]
        self.pointing = torch.cat(parts) if parts else None

    def cosine(self) -> Tensor | None:
        """Cosine of this step's gradient with the one before; the newer takes the older one's place.

        Not a number where one of them holds none.
        """
        now, before = self.pointing, self.cosine_before
        self.cosine_before, self.pointing = now, None
        if now is None or before is None or before.shape != now.shape:
            return None
        alike: Tensor = _unit(now) @ _unit(before)
        return alike

    def stats(
        self, i: int, weight: float, update: float, gradient: float | None, used: float | None = None
    ) -> ParameterStats:
        """One parameter's numbers from transferred norms (weights: of the sampled elements) of it and its gradient."""
        w = self.items[i]
        count = min(w.facts.numel, -(-w.facts.numel // max(1, -(-w.facts.numel // self.most))))
        rms = weight / math.sqrt(max(count, 1))
        if w.start_rms is None:
            w.start_rms = rms
        ratio = moved = None
        if not math.isnan(update) or not math.isfinite(weight):
            moved = update != 0.0
            ratio = update / weight if weight > 0 and math.isfinite(update) and math.isfinite(weight) else None
        return ParameterStats(
            gradient=None if gradient is None else gradient / math.sqrt(max(w.facts.numel, 1)),
            weight=rms,
            update=ratio,
            moved=moved if w.facts.trainable else None,
            carried=w.carried,
            weight_finite=math.isfinite(weight),
            used=None if used is None else used / math.sqrt(max(w.facts.numel, 1)),
            writes=w.writes,
        )

    def started_alike(self) -> list[int]:
        """Matrices whose units started equal; those of zeros count where all matrices of a deeper net started so."""
        matrices = sum(p.dim() > 1 and p.shape[0] > 1 for _, p in self.live())
        whole = DEEPER <= matrices == len(self.alike) + len(self.zeros)
        return sorted([*self.alike, *(self.zeros if whole else [])])

    def reset_step(self) -> None:
        for w in self.items:
            w.consumed_norm, w.used_norm, w.writes, w.carried = None, None, 0, False


def _unit(x: Tensor) -> Tensor:
    """A vector of length 1; by its largest element first, for squares overflow long before gradients do."""
    x = x / x.abs().amax().clamp_min(1e-38)
    length: Tensor = torch.linalg.vector_norm(x)
    return x / length.clamp_min(1e-38)


def units_alike(p: Tensor) -> float | None:
    """The largest weight if the units (rows) of a matrix are equal, else None; of many rows up to eight are read."""
    if p.dim() < 2 or p.shape[0] < 2 or not p.numel():
        return None
    rows = p.detach()[:: -(-p.shape[0] // 8)].flatten(1).float()
    apart, high = torch.stack([(rows - rows[0]).abs().amax(), rows.abs().amax()]).tolist()
    return float(high) if apart == 0 and high < math.inf else None


def _writes(before: tuple[int, int], now: tuple[int, int]) -> int:
    """How often a gradient was written to between two of its marks; another tensor in its place is a write too."""
    return now[1] - before[1] if now[0] == before[0] and now[1] >= before[1] else 1 + now[1]


def _measure_used(met: list[tuple[Watched, Tensor]]) -> None:
    """The norms of the gradients that an optimizer took, if they were not all written to alike since backward ended.

    Version counters tell, so that clipping all or none of them costs nothing; a write through `.data` is not seen.
    """
    if len({w.writes for w, _ in met}) > 1:
        for (w, _), n in zip(met, norms([g.detach() for _, g in met]), strict=True):
            w.used_norm = n


def has_part(p: Tensor) -> bool:
    """Whether this parameter, or this rank's part of it, can be measured."""
    x = shard(p)
    return is_measurable(x) and (x is p or x.numel() > 0)


def gradient_of(p: Tensor) -> Tensor | None:
    """A parameter's gradient, if it is one whose norm can be taken (a sparse one of an embedding can).

    Of a sharded one, this rank's part.
    """
    g = p.grad
    g = g if g is None else shard(g)
    return g if g is not None and (is_measurable(g) or (type(g) is Tensor and g.layout is torch.sparse_coo)) else None


def _what(p: Tensor) -> str:
    """What makes a parameter different, in a word or two."""
    if is_measurable(shard(p)):
        return "all of it on other ranks"
    if type(p) not in (Tensor, nn.Parameter):
        return type(p).__name__
    if p.device.type == "meta":
        return "on the meta device"
    return str(p.dtype if p.is_complex() else p.layout).removeprefix("torch.")


def rates_of(optimizer: Any) -> tuple[float, ...]:
    return tuple(r for g in optimizer.param_groups if (r := _number(g.get("lr"))) is not None)


def starts_afresh(optimizer: Any) -> bool | None:
    """Whether an optimizer that has just been met has no past, by its own step counter (None: it has none).

    It is met at its first step (its counter says 1), or right before that by a GradScaler (it has no state yet).
    """
    counter = next((s["step"] for s in optimizer.state.values() if isinstance(s, dict) and "step" in s), None)
    if counter is None:
        return True if not optimizer.state and "betas" in optimizer.param_groups[0] else None
    steps = _number(counter)
    return None if steps is None else steps <= 1


def _at_first_rate(group: dict[str, Any]) -> bool | None:
    """Whether a schedule hangs on this group and its rate is where the schedule begins."""
    start, rate = _number(group.get("initial_lr")), _number(group.get("lr"))
    return None if start is None or rate is None else rate == start


def _number(value: Any) -> float | None:
    """A plain float; a tensor on an accelerator is not read (that would wait for it)."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None
