"""Putting a step's numbers together: the one transfer, names, facts, and the first non-finite place."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.record import Coverage, Culprit, InputStats, LayerStats, ParameterStats, RunFacts, StepRecord
from neuraldbg.watch.host import has_values

if TYPE_CHECKING:
    from neuraldbg.watch.session import Session


SURE = 5  # steps after which a wrapper that no forward came through is taken to be gone around


class Transfer:
    """Named parts that travel from the device in one copy."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, int]] = []
        self.flat: list[Tensor] = []

    def add(self, name: str, tensors: list[Tensor]) -> None:
        flat = [t.detach().reshape(-1) for t in tensors]
        self.parts.append((name, sum(t.numel() for t in flat)))
        self.flat.extend(flat)

    def read(self) -> dict[str, list[float]]:
        """All parts as lists of floats; this is the step's only wait for the device."""
        device = self.flat[0].device if self.flat else torch.device("cpu")
        same = [t.to(device).double() for t in self.flat]
        numbers = torch.cat(same).tolist() if same else []
        out: dict[str, list[float]] = {}
        start = 0
        for name, count in self.parts:
            out[name] = numbers[start : start + count]
            start += count
        return out


class Names:
    """Public names: a module's own in its model, after the model's where a session has several.

    They are fixed when the first step ends, since a session that was opened by discovery may grow until then.
    """

    def __init__(self) -> None:
        self.parameter_model: list[int] = []
        self.modules: list[str] = []
        self.parameters: list[str] = []

    def fix(self, session: Session) -> None:
        places, items = session.forward.places, session.parameters.items
        if len(self.modules) == len(places) and len(self.parameters) == len(items):
            return
        several = len(session.models) - len(session.dropped) > 1
        prefix = [f"{name}." if several else "" for name, _ in session.models]
        self.modules = [(prefix[p.model] + p.name).rstrip(".") for p in places]
        self.parameters = [
            prefix[self.parameter_model[k]] + (f"{w.module}.{w.name}" if w.module else w.name)
            for k, w in enumerate(items)
        ]

    def module(self, i: int) -> str:
        return self.modules[i]

    def parameter(self, i: int) -> str:
        return self.parameters[i]

    def owner(self, i: int) -> str:
        """The module that holds parameter i."""
        return self.parameters[i].rpartition(".")[0].partition("parametrizations.")[0].rstrip(".")


def plain(record: StepRecord, model: str) -> StepRecord:
    """A record of several models as it would be of this one alone: its names without the model's, the others out."""

    def own(name: str) -> bool:
        return name == model or name.startswith(model + ".")

    def short(name: str) -> str:
        return name[len(model) + 1 :]

    bad, culprit = record.first_bad, record.culprit
    if bad is not None and bad[1] and own(bad[1]):
        bad = bad[0], short(bad[1])
    if culprit is not None and culprit.module and own(culprit.module):
        culprit = dataclasses.replace(culprit, module=short(culprit.module))
    return dataclasses.replace(
        record,
        layers={short(name): s for name, s in record.layers.items() if own(name)},
        parameters={short(name): s for name, s in record.parameters.items() if own(name)},
        alike=tuple(short(name) for name in record.alike if own(name)),
        first_bad=bad,
        culprit=culprit,
    )


def group_gradients(session: Session, gradients: dict[int, float]) -> tuple[float | None, ...]:
    """RMS gradient of each optimizer's parameters when it stepped."""
    out: list[float | None] = []
    for owner in session.parameters.owners:
        held = [i for i in owner.members if i in gradients]
        count = sum(session.parameters.items[i].facts.numel for i in held)
        out.append(math.sqrt(sum(gradients[i] ** 2 for i in held) / count) if count else None)
    return tuple(out)


def first_bad(
    session: Session,
    given: tuple[InputStats, ...],
    layers: dict[int, LayerStats],
    loss: Any,
    gradients: dict[int, float],
    parameters: dict[int, ParameterStats],
) -> tuple[str, str | None] | None:
    """The first non-finite place of this step in the order of computing; None where all went well.

    Gradients that a GradScaler catches are no failure; minus infinity in an output alone is a mask, not a failure.
    """
    names = session.names
    loss_bad = loss is not None and not math.isfinite(float(loss))
    grads_bad = [i for i, n in gradients.items() if not math.isfinite(n)]
    weights_bad = [i for i, p in parameters.items() if not p.weight_finite]
    inputs_bad = any(x.nans or x.infs for x in given)
    if not inputs_bad and not loss_bad and not weights_bad and (not grads_bad or session.skipped):
        return None
    if inputs_bad:
        return "input", None
    if session.weights_bad:
        return "weight", None
    for i in session.forward.order:
        s = layers.get(i)
        if s is None or s.finite or (s.nan_share == 0 and s.high < math.inf):
            continue
        if s.inputs_finite:
            return "forward", names.module(i)
        parent = names.module(i).rpartition(".")[0]  # a function of the parent made it, between two modules
        return "forward", parent
    if loss_bad:
        return "loss", None
    if grads_bad and not session.skipped:
        return "gradient", _after_last(session, [names.owner(i) for i in grads_bad])
    if weights_bad:
        order = {names.module(p): n for n, p in enumerate(session.forward.order)}
        held = sorted({names.owner(i) for i in weights_bad}, key=lambda n: order.get(n, 0))
        return "weight after", held[0]
    return None


def with_culprit(bad: tuple[str, str | None] | None, culprit: Culprit | None) -> tuple[str, str | None] | None:
    """The place that the replay found instead of the one that statistics suggest; a bad input or weight comes first."""
    if culprit is None or (bad is not None and bad[0] in ("input", "weight")):
        return bad
    phase = {"backward": "gradient"}.get(culprit.phase, culprit.phase)
    return phase, None if phase == "input" else culprit.module


def _after_last(session: Session, bad: list[str]) -> str:
    """Where a non-finite gradient came from: backward runs from the loss, so it is at or after the last bad layer.

    A module without parameters that follows it (a distance, a norm of one's own) is where its derivative was taken.
    """
    ran = [(session.names.module(i), session.forward.places[i].facts) for i in session.forward.order]
    place = {name: n for n, (name, _) in enumerate(ran)}
    last = max((place.get(n, -1) for n in bad), default=-1)
    later = [name for name, f in ran[last + 1 :] if not f.container and not f.parameters and not f.activation]
    return later[-1] if later else (ran[last][0] if last >= 0 else bad[0])


def build_facts(session: Session) -> RunFacts:
    """What is known of the run by now."""
    forward, parameters, notes = session.forward, session.parameters, session.forward.notes
    session.names.fix(session)
    outputs = notes.outputs - notes.feeding
    leaves = [i for i, p in enumerate(forward.places) if p.seen is not None and not p.facts.container]
    if not outputs and leaves:
        outputs = {max(leaves, key=lambda i: forward.places[i].seen or 0)}
    modules = tuple(
        dataclasses.replace(
            p.facts,
            name=session.names.module(i),
            order=p.seen,
            activation=p.facts.activation or p.functional,
            functional=bool(p.functional and not p.facts.activation),
            position="output" if i in outputs else "hidden",
            norm_over=p.norm_over or p.facts.norm_over,
            width=p.width or p.facts.width,
            container=p.facts.container and p.duplicate,
            has_children=p.facts.container,
            dtype=p.dtype,
            without_grad=p.cut and p.seen is None,
            running_rms=running_rms(p.ref()) if session.ended else None,
        )
        for i, p in enumerate(forward.places)
        if p.model not in session.dropped and not p.gone
    )
    items = tuple(
        dataclasses.replace(
            w.facts,
            name=session.names.parameter(i),
            module=session.names.owner(i),
            owner=w.owner,
            rms=w.start_rms,
            trainable=p.requires_grad if (p := w.ref()) is not None else w.facts.trainable,
        )
        for i, w in enumerate(parameters.items)
        if session.names.parameter_model[i] not in session.dropped and not w.gone
    )
    has = {"norm": any(f.norm_over for f in modules), "recurrent": any(f.recurrent for f in modules)}
    seen = sum(f.order is not None for f in modules)
    silent_notes = [*session.notes, *parameters.notes()]
    silent_notes += filter(None, [session.kept.note(session.count), _around(session)])
    if session.compiled and not seen:
        silent_notes.append(
            "no forward hook ran: the model was compiled and called before the session; enter it before the first call"
        )
    if forward.passed:
        silent_notes.append(
            f"the outputs of {len(forward.passed)} norms and dropouts, which a look would make the compiled graph keep"
        )
    elapsed = max(1e-9, _elapsed(session))
    found = session.facts
    place = place_among_ranks()
    return RunFacts(
        models=tuple(name for k, (name, _) in enumerate(session.models) if k not in session.dropped),
        modules=modules,
        parameters=items,
        optimizers=tuple(o.facts for o in parameters.owners),
        structure=frozenset(notes.structure | {k for k, v in has.items() if v}),
        loss_kind=session.found.kind if session.found is not None else found.loss_kind,
        loss_reduction=session.found.reduction if session.found is not None else found.loss_reduction,
        told_loss=session.clock.told,
        scaler=session.scale is not None or found.scaler,
        manual_optimizer=not parameters.owners and session.count > 0,
        exception=session.exception[0] if session.exception else None,
        exception_place=session.exception[1] if session.exception else "",
        exception_layer=session.exception[2] if session.exception else None,
        tracked_run=found.tracked_run,
        started=found.started,
        rank=place[0],
        world=place[1],
        coverage=Coverage(
            modules=len(modules),
            modules_seen=seen,
            parameters=len(items),
            parameters_seen=sum(
                w.ended is not None or not w.facts.trainable
                for i, w in enumerate(parameters.items)
                if session.names.parameter_model[i] not in session.dropped and not w.gone
            ),
            steps=session.count - session.joined[0],
            steps_sampled=session.sampled_count - session.joined[1],
            mode="compiled" if session.compiled or (session.count and not session.forward.ran) else "eager",
            share=min(1.0, session.spent / elapsed),
            notes=tuple(silent_notes),
        ),
    )


def place_among_ranks() -> tuple[int | None, int | None]:
    """(rank, world size) of this process, from its process group or what a launcher such as torchrun has set."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (None, None)


def _around(session: Session) -> str:
    """Whether DistributedDataParallel was gone around: then no gradient is averaged, and its ranks drift apart."""
    if session.around is not False or session.count < SURE:
        return ""
    return (
        "the other ranks, but the forward goes around DistributedDataParallel (model.module is called, not model),"
        " so no gradient is averaged over them"
    )


def running_rms(module: nn.Module | None) -> float | None:
    """The rms of its input that a norm's running statistics stand for (at the end only: this waits for the device)."""
    mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    if not isinstance(mean, Tensor) or not isinstance(var, Tensor) or not mean.numel() or not has_values(mean):
        return None
    with torch.no_grad():
        return float((mean.double() ** 2 + var.double()).mean().sqrt())


def _elapsed(session: Session) -> float:
    return time.perf_counter() - session.started
