"""Bounded activations and recurrent gates that sit at their limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, previous_layer
from neuraldbg.events import SemanticEvent, observed, recovered
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.settings import Settings

SHARE = 0.7  # of outputs at the limits: healthy hidden layers reach 0.09, failing ones 0.74 and more
LEFT = 0.4  # below this the layer counts as recovered (hysteresis)
IN_A_ROW = 2  # samples: one batch may be odd


@dataclass(frozen=True)
class Layer:
    start: float
    hits: int = 0
    since: int = 0
    event: SemanticEvent | None = None


def initial(settings: Settings) -> dict[str, Layer]:
    return {}


def step(state: dict[str, Layer], record: StepRecord, facts: RunFacts) -> tuple[dict[str, Layer], list[SemanticEvent]]:
    if not clean(record):
        return state, []
    state, events = dict(state), []
    for m in facts.modules:
        s = record.layers.get(m.name)
        bounded = m.activation in ("tanh", "sigmoid") or m.recurrent
        if s is None or s.saturated is None or not bounded:
            continue
        layer = state.get(m.name, Layer(start=s.saturated))
        if layer.event is not None and s.saturated < LEFT:
            events.append(recovered(layer.event, record.step))
            layer = replace(layer, event=None, hits=0)
        elif s.saturated > SHARE and layer.event is None:
            layer = replace(layer, hits=layer.hits + 1, since=layer.since if layer.hits else record.step)
            if layer.hits >= IN_A_ROW:
                event = observed(
                    "saturation",
                    layer.since,
                    m.name,
                    confidence=min(1.0, s.saturated),
                    share=s.saturated,
                    derivative=s.derivative,
                    function=m.activation or m.kind,
                    position=m.position,
                    start=layer.start,
                    at_start=layer.start > SHARE,
                    previous=previous_layer(facts, m.name),
                )
                events.append(event)
                layer = replace(layer, event=event)
        elif layer.event is None:
            layer = replace(layer, hits=0)
        state[m.name] = layer
    return state, events
