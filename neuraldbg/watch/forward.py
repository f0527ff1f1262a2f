"""The forward side of watching: one row of numbers a module, activity of rectifier units, the order of calls."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.record import LayerStats, ModuleFacts
from neuraldbg.watch import structure
from neuraldbg.watch.host import has_values
from neuraldbg.watch.measure import COLUMNS, UNSEEN, WIDTH, active_units, gate_row, output_row
from neuraldbg.watch.sample import Sample

CALLS = 8  # calls of one module in one step that are measured (an LSTMCell in a loop makes many)
WINDOW_ROWS = 128  # samples after which a silent unit counts as dead (5 batches of 24-128 suffice)
WINDOW_STEPS = (5, 40)  # fewest and most sampled steps in that window


@dataclasses.dataclass
class Place:
    """One watched module and what is remembered of it."""

    name: str
    model: int
    ref: weakref.ref[nn.Module]
    facts: ModuleFacts
    row: Tensor  # [len(COLUMNS)], on the model's device
    sample: Sample | None  # what a traced graph copies of its output, where that is on a CPU
    calls: int = 0
    seen: int | None = None
    training: bool = True
    inputs: int | None = None
    last_active: Tensor | None = None
    duplicate: bool = False
    functional: str = ""
    norm_over: int | None = None
    width: int | None = None
    gates: Tensor | None = None
    dtype: str = "float32"
    requires_grad: bool = False
    eager: bool = False
    at: weakref.ref[nn.Module] | None = None  # the compiled wrapper that is called in its stead
    in_place: bool = False  # compiled by its own `compile()`
    hidden: bool = False  # without hooks, see attach.py
    gone: bool = False  # no longer part of its model
    cut: bool = False  # it ran inside a training forward with gradients off
    left_out: bool = False  # its statistics could not be taken once

    @property
    def function(self) -> str:
        """The bounded function whose output this module gives, "name()" where it is applied after the module."""
        own = self.facts.activation
        if own in ("tanh", "sigmoid", "softmax"):
            return own
        return f"{self.functional}()" if self.functional in ("tanh", "sigmoid") else ""

    @property
    def rectifies(self) -> bool:
        return self.facts.activation == "relu" or self.functional == "relu"


class ForwardWatch:
    """Rows of all modules of the session's models."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.order: list[int] = []
        self.samples = 0
        self.window = WINDOW_STEPS[0]
        self.notes = structure.GraphNotes()
        self.nodes: dict[Any, int] = {}
        self.ran = False  # whether any hook ran outside a traced graph
        self.mapping = True  # whether nodes of module outputs are being collected for a graph walk
        self.passed: set[int] = set()  # modules of a graph that ran without being looked at
        self.last: weakref.ref[Tensor] | None = None
        self.outputs: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self.traced: list[Tensor] = []  # the rows that a graph wrote in this step, one a device
        self.looked: dict[int, int] = {}  # rows that were read of each module's sample in this step

    def add(self, model: int, module: nn.Module) -> list[int]:
        """Take in all modules of a model; returns their numbers."""
        return self.extend(model, module, self.named(module))

    def named(self, module: nn.Module) -> list[tuple[str, nn.Module]]:
        """The modules of a model that are watched, by their public names."""
        return [
            (n.replace("._orig_mod", ""), m)
            for n, m in module.named_modules()
            if "parametrizations" not in n.split(".") and structure.inner_of(m) is None
        ]

    def extend(self, model: int, module: nn.Module, named: list[tuple[str, nn.Module]]) -> list[int]:
        """Take in some modules of a model, with rows of their own."""
        wrappers = {id(inner): m for m in module.modules() if (inner := structure.inner_of(m)) is not None}
        device = next((p.device for p in module.parameters() if p.device.type != "meta"), torch.device("cpu"))
        first = len(self.places)
        for name, m in named:
            row = torch.full((WIDTH,), UNSEEN, device=device)
            sample = Sample() if device.type == "cpu" else None
            place = Place(name, model, weakref.ref(m), structure.describe(name, m), row, sample)
            wrapper = wrappers.get(id(m))
            place.at = weakref.ref(wrapper) if wrapper is not None else None
            place.in_place = getattr(m, "_compiled_call_impl", None) is not None
            self.places.append(place)
        return list(range(first, len(self.places)))

    def rows(self) -> list[Tensor]:
        """All rows, those of one device in one tensor: [modules x statistics]."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for p in self.places:
            by_device.setdefault(p.row.device, []).append(p.row)
        return [torch.stack(rows) for rows in by_device.values()]

    def clear(self) -> None:
        """Empty all rows."""
        for row in (p.row for p in self.places):
            row.fill_(UNSEEN)

    def take(self) -> list[Tensor]:
        """The rows that a traced forward has just written: they may belong to a step that is not open yet."""
        taken = self.rows()
        self.clear()
        return taken

    def give(self, taken: list[Tensor]) -> None:
        """Let them be the open step's, beside what that step has and what samples tell."""
        self.look()
        if not taken:
            return  # it did not run inside a graph alone: its rows lie where they are
        taken = [torch.maximum(a, b) for a, b in zip(taken, self.take(), strict=True)]
        if self.traced:
            taken = [torch.maximum(a, b) for a, b in zip(self.traced, taken, strict=True)]
        self.traced = taken

    def begin(self, clear: bool = True) -> None:
        """Start a sampled step: forget the last one's numbers (a traced forward has written its own by now)."""
        if clear:
            self.clear()
        self.traced = []
        self.looked.clear()
        for p in self.places:
            p.calls = 0
        self.order.clear()
        self.outputs.clear()
        self.last = None

    def look(self) -> None:
        """Statistics of what a traced forward has copied go into its modules' rows."""
        for i, place in enumerate(self.places):
            found = place.sample.read() if place.sample is not None else None
            if found is None:
                continue
            rows, whole = found
            self.looked[i] = rows.shape[0]
            new = output_row(rows, place.function if whole or place.function != "softmax" else "", None)
            row = place.row[: new.shape[0]]
            torch.maximum(row, new, out=row)
            if place.rectifies and whole:
                self._activity(place, rows)

    def measure(self, index: int, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """One call of one module: its statistics go into its row."""
        self.ran = True
        place = self.places[index]
        place.eager = True
        out = first_tensor(output)
        if out is None or not out.numel() or not (out.is_floating_point() or out.is_complex()):
            return
        if not has_values(out):
            return
        place.calls += 1
        if place.calls > CALLS:
            return
        if place.calls == 1:
            self.order.append(index)
            place.training = module.training
            place.requires_grad = out.requires_grad
            place.dtype = str(out.dtype).removeprefix("torch.")
        if self.mapping and out.grad_fn is not None:
            self._note(index, module, args, out)
        if place.facts.container and self.last is not None and self.last() is out:
            place.duplicate = True
            return
        self.last = weakref.ref(out)
        given = first_tensor(args)
        source = self._source(given)
        if place.calls == 1:
            place.inputs = source
            if place.seen is None:
                place.norm_over = structure.norm_count(module, given) if given is not None else None
                place.width = out.shape[-1] if out.dim() else 1
                if isinstance(module, nn.Softmax):
                    place.width = out.shape[module.dim if module.dim is not None else -1] if out.dim() else 1
        if given is not None and not has_values(given):
            given = None
        measured = given if source is None and given is not None and given.is_floating_point() else None
        new = output_row(out, place.function, measured)
        row = place.row[: new.shape[0]]
        torch.maximum(row, new.to(row.device, non_blocking=True), out=row)
        self.outputs[id(out)] = (weakref.ref(out), index)
        if place.rectifies:
            self._activity(place, out)
        if place.facts.recurrent and isinstance(module, (nn.LSTM, nn.GRU)) and given is not None:
            weight, bias = module.weight_ih_l0, module.bias_ih_l0 if module.bias else None
            if isinstance(weight, Tensor):
                place.gates = gate_row(given, weight, bias if isinstance(bias, Tensor) else None, module.mode)

    def _activity(self, place: Place, out: Tensor) -> None:
        active = active_units(out)
        if place.last_active is None or place.last_active.shape != active.shape:
            place.last_active = torch.full(active.shape, -1, dtype=torch.int32, device=active.device)
        place.last_active.masked_fill_(active, self.samples)

    def _source(self, given: Tensor | None) -> int | None:
        found = self.outputs.get(id(given)) if given is not None else None
        return found[1] if found is not None and found[0]() is given else None

    def _note(self, index: int, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        if not self.places[index].facts.container:
            self.nodes[out.grad_fn] = index
        if structure.is_residual(args, out):
            self.notes.structure.add("residual")
        if isinstance(module, nn.MultiheadAttention):
            self.notes.structure.add("attention")

    def walk(self, root: Any) -> None:
        """Join the modules by the graph of this backward pass; afterwards the nodes are let go."""
        norms = {i for i, p in enumerate(self.places) if isinstance(p.ref(), structure.NORMS)}
        self.notes.walk(root, self.nodes, norms)
        self.nodes.clear()
        for i, kind in self.notes.functional.items():
            self.places[i].functional = kind

    def to_transfer(self) -> tuple[list[int], list[Tensor]]:
        """(numbers of the modules seen, tensors to transfer): rows, then dead and never shares, then gates."""
        self.look()
        rows = self.traced or self.rows()
        dead = [i for i in dict.fromkeys((*self.order, *self.looked)) if self.places[i].last_active is not None]
        shares = []
        for i in dead:
            last = self.places[i].last_active
            if last is not None:
                shares.append((last <= self.samples - self.window).float().mean())
                shares.append((last < 0).float().mean())
        gates = [g for i in self.gated() if (g := self.places[i].gates) is not None]
        return dead, [*rows, *([torch.stack(shares)] if shares else []), *([torch.stack(gates)] if gates else [])]

    def gated(self) -> list[int]:
        return [i for i in self.order if self.places[i].gates is not None]

    def read(self, dead: list[int], numbers: list[float]) -> dict[int, LayerStats]:
        """LayerStats of the modules that ran, from the numbers that `to_transfer` put on their way."""
        start: dict[int, int] = {}  # of each module's row among the numbers
        for device in dict.fromkeys(p.row.device for p in self.places):
            for i, p in enumerate(self.places):
                if p.row.device == device:
                    start[i] = len(start) * WIDTH
        offset = len(start) * WIDTH
        shares = dict(
            zip(
                dead,
                zip(
                    numbers[offset : offset + 2 * len(dead) : 2],
                    numbers[offset + 1 : offset + 2 * len(dead) : 2],
                    strict=True,
                ),
                strict=True,
            )
        )
        gated = dict(zip(self.gated(), numbers[offset + 2 * len(dead) :], strict=False))
        full = self.samples + 1 >= self.window
        called = set(self.order)
        passed = {i for i in start if i not in called and numbers[start[i] + WIDTH - 1] != UNSEEN}
        traced = [i for i in start if i not in called and (numbers[start[i]] != UNSEEN or i in passed)]
        self.passed |= passed
        seen = sorted([*self.order, *traced]) if traced else self.order
        if traced:
            for i in seen:  # the order of definition stands in for the order of calls
                self.places[i].seen = i
        stats: dict[int, LayerStats] = {}
        for i in seen:
            p = self.places[i]
            at = start[i]
            row = dict(zip(COLUMNS, numbers[at : at + WIDTH], strict=True))
            gate = gated.get(i)
            if row["rms"] == UNSEEN:
                continue
            source = stats.get(p.inputs) if p.inputs is not None else None
            stats[i] = _stats(row, p, source, shares.get(i) if full else None, gate)
        return stats

    def end(self, rows: int | None) -> None:
        """Close a sampled step: the activity window follows the batch size, so that it holds enough samples."""
        self.samples += 1
        for i in self.order:
            if self.places[i].seen is None:
                self.places[i].seen = self.order.index(i)
        if rows:
            rows = min([rows, *(n for i, n in self.looked.items() if self.places[i].rectifies)])
            low, high = WINDOW_STEPS
            self.window = min(high, max(low, -(-WINDOW_ROWS // rows)))


def _known(value: float) -> float | None:
    return None if value in (UNSEEN, -UNSEEN) else value


def _stats(
    row: dict[str, float], place: Place, source: LayerStats | None, dead: tuple[float, float] | None, gate: float | None
) -> LayerStats:
    low, high = -row["-low"], row["high"]
    finite = abs(low) != float("inf") and abs(high) != float("inf") and low == low and high == high
    given = source.rms if source is not None else _known(row["inputs_rms"])
    given_high = max(abs(source.low), abs(source.high)) if source is not None else _known(row["inputs_high"])
    saturated = gate if gate is not None else _known(row["saturated"])
    dead_now = _known(-row["-dead_now"])
    return LayerStats(
        rms=row["rms"],
        low=low,
        high=high,
        mean=row["mean"],
        spread=_known(row["spread"]),
        dead=dead[0] if dead else dead_now,
        never=dead[1] if dead else None,
        saturated=saturated,
        derivative=_known(-row["-derivative"]),
        entropy=_known(-row["-entropy"]),
        offset=_known(row["offset"]),
        finite=finite,
        inputs_finite=given_high is None or (given_high == given_high and given_high != float("inf")),
        inputs_high=given_high,
        inputs_rms=given,
        nan_share=float(low != low or high != high),
        inf_share=float(abs(low) == float("inf") or abs(high) == float("inf")),
        training=place.training,
    )


def first_tensor(value: Any, depth: int = 3) -> Tensor | None:
    """The first tensor in tuples, lists, dicts, dataclasses and packed sequences."""
    if isinstance(value, Tensor):
        return value
    if depth == 0 or value is None:
        return None
    if isinstance(value, nn.utils.rnn.PackedSequence):
        return value.data
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, (tuple, list)):
        parts = value
    elif dataclasses.is_dataclass(value):
        parts = (getattr(value, f.name, None) for f in dataclasses.fields(value))
    else:
        return None
    return next((t for part in parts if (t := first_tensor(part, depth - 1)) is not None), None)
