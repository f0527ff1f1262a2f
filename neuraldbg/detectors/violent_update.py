"""Updates of the size of the weights themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuraldbg.detectors._common import clean, lg, weight_layers
from neuraldbg.events import SemanticEvent, observed
from neuraldbg.record import RunFacts, StepRecord
from neuraldbg.run import median
from neuraldbg.settings import Settings

RATIO = 0.2  # rms(dw)/rms(w), median over tensors: healthy to 0.1 (Adagrad's first step 0.33), failing 0.3 to 1
ELEMENTS = 16  # smaller tensors jump at random
START = 5  # steps that count as the start
MOST = 5  # times that it is told; more say nothing new
AGAIN = 30  # samples without one after which the next is news


@dataclass(frozen=True)
class State:
    quiet: int = AGAIN
    told: int = 0
    rates: tuple[float, ...] = ()


def initial(settings: Settings) -> State:
    return State()


def step(state: State, record: StepRecord, facts: RunFacts) -> tuple[State, list[SemanticEvent]]:
    if not record.sampled:
        return state, []
    rates = (*state.rates, max(record.rates, default=0.0))[-3:]
    state = replace(state, rates=rates)
    ratios = {
        m.name: s.update
        for m, p in weight_layers(facts)
        if p.numel >= ELEMENTS
        and p.rms
        and (s := record.parameters.get(p.name)) is not None
        and s.update
        and math.isfinite(s.update)
    }
    usual = median(list(ratios.values()))
    if usual is None or usual < RATIO:
        return replace(state, quiet=state.quiet + 1), []
    fresh = state.quiet >= AGAIN and state.told < MOST
    state = replace(state, quiet=0, told=state.told + fresh)
    if not fresh:
        return state, []
    event = observed(
        "violent_update",
        record.step,
        None,
        update_lg=lg(usual),
        at_start=record.step < START,
        layers=len(ratios),
        largest=max(ratios, key=lambda n: ratios[n]),
        ramping=len(rates) == 3 and rates[0] < rates[1] < rates[2],
        rate=rates[-1],
        clean=clean(record),
    )
    return state, [event]
