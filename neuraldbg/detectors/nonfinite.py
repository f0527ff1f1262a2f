"""The first non-finite place, in the order of computing, and whether something grew towards it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from neuraldbg.detectors._common import lg, size
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

LIMITS = {"float16": 65504.0, "bfloat16": 3.4e38, "float32": 3.4e38, "float64": 1.8e308}
HEAD = 10  # steps whose median is the baseline of growth


@dataclass(frozen=True)
class State:
    gradients: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    last_gradient: float | None = None
    last_high: float | None = None
    last_step: int | None = None
    scaled: float | None = None
    place_told: bool = False
    loss_told: bool = False
    absorbed: frozenset[str] = frozenset()  # layers whose infinities did no harm: the scores of a mask


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    events: list[SemanticEvent] = []
    if record.first_bad is not None and not state.place_told:
        event = _place(state, record, facts)
        if event is not None:
            events.append(event)
        state = replace(state, place_told=True)
    if record.loss is not None and not math.isfinite(record.loss) and not state.loss_told:
        known = {**_growths(state), **_operator(record)} if (record.first_bad or ("",))[0] == "loss" else {}
        events.append(observed("loss_nonfinite", record.step, value=str(record.loss), **known))
        state = replace(state, loss_told=True)
    if record.first_bad is None:
        state = _remember(state, record)
    return state, events


def _remember(state: State, record: StepRecord) -> State:
    new: dict[str, Any] = {"last_step": record.step}
    g = record.gradient_norm
    if g is not None and math.isfinite(g) and g > 0:
        new["last_gradient"] = g
        if len(state.gradients) < HEAD:
            new["gradients"] = (*state.gradients, g)
        peak = max((p.gradient for p in record.parameters.values() if p.gradient), default=None)
        if peak:
            new["scaled"] = peak * (record.loss_scale or 1.0)
    high = max((size(s) for s in record.layers.values() if s.finite), default=None)
    if high:
        new.update(highs=(*state.highs, high)[:HEAD], last_high=high)
    bad = {name for name, s in record.layers.items() if not s.finite}
    if bad:
        new["absorbed"] = state.absorbed | bad
    return replace(state, **new)


def _swallowed(state: State, record: StepRecord, facts: RunFacts) -> str | None:
    """A layer that turned non-finite in this step out of finite inputs, though a bounded function hid it again."""
    for name in facts.forward_order:
        s = record.layers.get(name)
        if s is not None and not s.finite and s.inputs_finite and name not in state.absorbed:
            return name
    return None


def _growth(head: tuple[float, ...], last: float | None) -> float:
    usual = median(head)
    return lg(last) - lg(usual) if usual and last else 0.0


def _growths(state: State) -> dict[str, Any]:
    return {
        "growth_lg": _growth(state.gradients, state.last_gradient),
        "activation_growth_lg": _growth(state.highs, state.last_high),
    }


def _operator(record: StepRecord) -> dict[str, Any]:
    """What the replay of this step found; `place` is model or loss."""
    found = record.culprit
    if found is None:
        return {"operator": None}
    place = "loss" if found.module is None else "model"
    return {
        "operator": found.operator,
        "file": found.file,
        "line": found.line,
        "place": place,
        "detail": found.detail,
    }


def _place(state: State, record: StepRecord, facts: RunFacts) -> SemanticEvent | None:
    phase, layer = record.first_bad or ("", None)
    told = _operator(record)
    if phase == "gradient" and (hidden := _swallowed(state, record, facts)) is not None:
        phase, layer, told = "forward", hidden, {"operator": None}
    since = None
    if state.last_step is not None and record.step - state.last_step > 1:
        since = (state.last_step + 1, record.step)
    growth = _growths(state)
    dtypes = {p.dtype for p in facts.parameters if p.trainable}
    dtype = "float16" if "float16" in dtypes else next(iter(sorted(dtypes)), "float32")
    if phase == "forward":
        bad = record.layers.get(layer or "")
        finite = [size(s) for s in record.layers.values() if s.finite]
        if bad and bad.inputs_high and math.isfinite(bad.inputs_high):
            finite.append(bad.inputs_high)
        module = facts.module(layer)
        return observed(
            "nonfinite_activation",
            record.step,
            layer,
            step_range=since,
            **growth,
            inputs_finite=True if told["operator"] else bad.inputs_finite if bad else None,
            nan_share=bad.nan_share if bad else None,
            inf_share=bad.inf_share if bad else None,
            largest=max(finite, default=None),
            dtype=module.dtype if module else dtype,
            kind=module.kind if module else None,
            weighted=bool(module and module.parameters),
            **told,
        )
    if phase == "gradient":
        limit = LIMITS.get(dtype, LIMITS["float32"])
        headroom = lg(state.scaled) - lg(limit) if state.scaled else None
        return observed(
            "nonfinite_gradient",
            record.step,
            layer,
            step_range=since,
            **growth,
            forward_finite=True,
            loss_finite=record.loss is None or math.isfinite(record.loss),
            dtype=dtype,
            headroom_lg=headroom,
            place_known=record.sampled,
            **told,
        )
    if phase == "weight after":
        eps = next((o.eps for o in facts.optimizers if o.eps is not None), None)
        return observed("nonfinite_weight", record.step, layer, **growth, gradient_finite=True, dtype=dtype, eps=eps)
    if phase == "weight":
        return observed("nonfinite_weight", record.step, layer, **growth, gradient_finite=None, dtype=dtype, eps=None)
    return None
