"""Units of a rectifier that are zero on every sample of a window: dead, not merely sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import WINDOW, clean, previous_layer
from neuraldbg.events import SemanticEvent, observed, recovered
from neuraldbg.record import LayerStats, ModuleFacts, RunFacts, StepRecord
from neuraldbg.settings import Settings

SHARE = 0.3  # healthy nets on positive inputs reach 0.42: an event, not yet a failure
AGAIN = 0.2  # growth of the share after which it is said again
ALIVE = 0.15  # below this the layer counts as recovered (hysteresis)
BIAS = 0.8  # mean(bias) / rms(pre-activation) below minus this: the bias alone decides (failing -0.98, healthy -0.66)
ALL = 0.9  # of a layer's units


@dataclass(frozen=True)
class Layer:
    start: float
    told: float = 0.0
    hits: int = 0
    since: int = 0
    event: SemanticEvent | None = None
    fresh: bool = True


@dataclass(frozen=True)
class State:
    layers: dict[str, Layer]
    steps: tuple[int, ...] = ()


def initial(settings: Settings) -> State:
    return State({})


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not clean(record):
        return state, []
    steps = (*state.steps, record.step)[-WINDOW:]
    layers, events = dict(state.layers), []
    for m in facts.modules:
        s = record.layers.get(m.name)
        if s is None or s.dead is None or m.activation != "relu":
            continue
        layer = layers.get(m.name, Layer(start=s.dead))
        layer, new = follow(layer, m, s, record, steps[-(record.window or 1) :], facts)
        layers[m.name] = layer
        events.extend(new)
    return State(layers, steps), events


def follow(
    layer: Layer, m: ModuleFacts, s: LayerStats, record: StepRecord, window: tuple[int, ...], facts: RunFacts
) -> tuple[Layer, list[SemanticEvent]]:
    """One layer, one step: said when it stays dead, said again when much more of it is."""
    dead = s.dead or 0.0
    if layer.event is not None and dead < ALIVE:
        return replace(layer, told=0.0, hits=0, event=None), [recovered(layer.event, record.step)]
    if dead <= max(SHARE, layer.told + AGAIN if layer.told else 0.0):
        return replace(layer, hits=0, fresh=False), []
    if not layer.hits:
        layer = replace(layer, since=window[0])
    at_start = layer.fresh and layer.start > SHARE
    if layer.hits < 1 and not at_start:
        return replace(layer, hits=1, fresh=False), []
    before = previous_layer(facts, m.name)
    pre = record.layers.get(before) if before else None
    event = observed(
        "dead_units",
        max(0, layer.since - (1 if m.functional and at_start else 0)),
        m.name,
        confidence=min(1.0, dead + 0.3),
        share=dead,
        at_start=layer.start,
        rise=dead - layer.start,
        position=m.position,
        previous=before,
        ratio=pre.mean / pre.rms if pre is not None and pre.rms else None,
    )
    events = [event]
    bias = bias_ratio(before, pre, facts) if at_start and dead >= ALL and m.position == "hidden" else None
    if bias is not None and bias < -BIAS:
        events.insert(0, observed("negative_bias", event.step, before, ratio=bias, next=m.name, share=dead))
    return replace(layer, told=dead, hits=0, event=event, fresh=False), events


def bias_ratio(name: str | None, stats: LayerStats | None, facts: RunFacts) -> float | None:
    """mean(bias) at the start / rms of the layer's output."""
    bias = next(
        (p for p in facts.parameters if p.module == name and p.name.endswith("bias") and p.mean is not None), None
    )
    return (
        bias.mean / stats.rms
        if bias is not None and bias.mean is not None and stats is not None and stats.rms
        else None
    )
