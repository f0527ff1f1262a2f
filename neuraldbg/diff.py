"""The first divergence of two trainings: in what they are made of, their first weights, their series, their events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import Phase, SemanticEvent
from neuraldbg.record import RunFacts

# the phase of a step in which each number arises; `rate` is set before the update that uses it
PHASES: Mapping[str, Phase] = {
    "loss": Phase.LOSS,
    "skill": Phase.LOSS,
    "gradient_norm": Phase.GRADIENT,
    "cosine": Phase.GRADIENT,
    "rate": Phase.UPDATE,
    "update": Phase.UPDATE,
}
ALWAYS = ("loss", "gradient_norm")  # read at every step that is read at all: absent means not finite
APART = (0.01, 0.1, 1.0)  # relative distances of the losses that are told


@dataclass(frozen=True)
class Difference:
    """What differs first, or a setting that does. layer: None where it has no layer; a, b: the two values, in words."""

    what: str
    a: str
    b: str
    step: int | None = None
    layer: str | None = None
    phase: Phase = Phase.PARAMETERS


@dataclass(frozen=True)
class Divergence:
    """first: the earliest difference of weights, series and events by (step, phase); None if there is none.

    settings: what the trainings are made of and differs. series: the first difference of each number. events: the
    first few that only one of them has. apart: relative distance of the losses -> first step at which it is reached.
    steps: how many steps both have.
    """

    steps: int
    first: Difference | None = None
    settings: tuple[Difference, ...] = ()
    series: tuple[Difference, ...] = ()
    events: tuple[Difference, ...] = ()
    apart: Mapping[str, int] | None = None

    @property
    def is_none(self) -> bool:
        return self.first is None and not self.settings


def load(path: Path) -> Diagnosis:
    """The diagnosis of a file, with the series as the journal beside it has them: they are thinned less.

    Raises ValueError for what is neither a diagnosis nor a journal.
    """
    from neuraldbg import journal
    from neuraldbg.runfolder import journal_of, read

    found = read(path)
    written = journal_of(path)
    if written is None:
        return found
    reading = journal.read(written)
    return replace(found, series={name: series.points for name, series in reading.series.items()})


def diverge(a: Diagnosis, b: Diagnosis, tolerance: float = 0.0) -> Divergence:
    """Where two trainings part. tolerance: relative distance up to which two numbers are the same."""
    settings = tuple(_settings(a.facts, b.facts))
    weights = _first_weights(a.facts, b.facts, tolerance)
    series = tuple(_series(a, b, tolerance))
    events = tuple(_events(a, b))
    known = [*([weights] if weights else []), *series, *events]
    return Divergence(
        steps=min(a.steps, b.steps),
        first=min(known, key=lambda d: (d.step or 0, int(d.phase)), default=None),
        settings=settings,
        series=series,
        events=events[:10],
        apart=_apart(a, b),
    )


def _far(x: float, y: float) -> float:
    """Relative distance; 0 of equal numbers, infinity where only one is finite."""
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))


def _settings(a: RunFacts, b: RunFacts) -> Iterator[Difference]:
    """What differs before a number is computed: optimizers, loss, modules, parameters."""
    for k in range(max(len(a.optimizers), len(b.optimizers))):
        known = [facts.optimizers[k] if k < len(facts.optimizers) else None for facts in (a, b)]
        for field in ("kind", "rates", "eps", "weight_decay", "momentum"):
            values = ["absent" if o is None else str(getattr(o, field)) for o in known]
            if values[0] != values[1]:
                end = f" of optimizer {k + 1}" if max(len(a.optimizers), len(b.optimizers)) > 1 else ""
                yield Difference(f"{field}{end}", values[0], values[1])
    for field in ("loss_kind", "loss_reduction", "scaler"):
        values = [str(getattr(facts, field)) for facts in (a, b)]
        if values[0] != values[1]:
            yield Difference(field, values[0], values[1])
    modules = [{m.name: m.kind for m in facts.modules} for facts in (a, b)]
    for name in _ordered(*modules):
        kinds = [of.get(name, "absent") for of in modules]
        if kinds[0] != kinds[1]:
            yield Difference("module", kinds[0], kinds[1], layer=name, phase=Phase.ARCHITECTURE)
    shapes = [{p.name: (p.module, f"{p.numel} values of {p.dtype}") for p in facts.parameters} for facts in (a, b)]
    for name in _ordered(*shapes):
        module, told = shapes[0].get(name, shapes[1].get(name, ("", "")))[0], [s.get(name) for s in shapes]
        said = [t[1] if t else "absent" for t in told]
        if said[0] != said[1]:
            yield Difference(f"parameter {name}", said[0], said[1], layer=module, phase=Phase.ARCHITECTURE)


def _ordered(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys((*a, *b)))


def _first_weights(a: RunFacts, b: RunFacts, tolerance: float) -> Difference | None:
    """The first parameter, in model order, whose values before the first update differ."""
    others = {p.name: p for p in b.parameters}
    for p in a.parameters:
        q = others.get(p.name)
        if q is None or q.numel != p.numel:
            continue
        for field in ("rms", "mean"):
            x, y = getattr(p, field), getattr(q, field)
            if x is not None and y is not None and _far(x, y) > tolerance:
                return Difference(f"first {field} of {p.name}", f"{x:.8g}", f"{y:.8g}", step=0, layer=p.module)
    return None


def _series(a: Diagnosis, b: Diagnosis, tolerance: float) -> Iterator[Difference]:
    seen = [{s for name in ALWAYS for s, _ in d.series.get(name, ())} for d in (a, b)]
    rates = [{s for s, _ in d.series.get("rate", ())} for d in (a, b)]
    both = (seen[0] | rates[0]) & (seen[1] | rates[1])
    for name, phase in PHASES.items():
        x, y = (dict(d.series.get(name, ())) for d in (a, b))
        if not x and not y:
            continue
        for step in sorted((x.keys() | y.keys()) & both):
            one, other = x.get(step, math.nan), y.get(step, math.nan)
            if name not in ALWAYS and (math.isnan(one) or math.isnan(other)):
                continue  # read at some steps only, or not computable
            if _far(one, other) > tolerance:
                yield Difference(name, _number(one), _number(other), step, phase=phase)
                break


def _number(value: float) -> str:
    return "not finite" if math.isnan(value) else f"{value:.8g}"


Key = tuple[int, int, str, str | None, str]


def _key(event: SemanticEvent) -> Key:
    return event.step, int(event.phase), event.symptom or event.text, event.layer_name, str(event.to_state)


def _events(a: Diagnosis, b: Diagnosis) -> Iterator[Difference]:
    """Events within the steps that both have and only one of them shows, in order."""
    last = min(a.steps, b.steps)
    counts = [Counter(_key(e) for e in d.events if e.step < last) for d in (a, b)]
    texts = {_key(e): e for d in (a, b) for e in d.events}
    for key in sorted(counts[0].keys() | counts[1].keys(), key=lambda k: (k[0], k[1], k[2], k[3] or "", k[4])):
        if counts[0][key] != counts[1][key]:
            event = texts[key]
            what = f"{event.text} is over" if event.is_recovery else event.text
            values = ["-" if not n else f"{n}x" for n in (counts[0][key], counts[1][key])]
            yield Difference(what, values[0], values[1], step=event.step, layer=event.layer_name, phase=event.phase)


def _apart(a: Diagnosis, b: Diagnosis) -> dict[str, int]:
    x, y = (dict(d.series.get("loss", ())) for d in (a, b))
    out: dict[str, int] = {}
    for step in sorted(x.keys() & y.keys()):
        far = _far(x[step], y[step]) if x[step] * y[step] > 0 else (0.0 if x[step] == y[step] else math.inf)
        ratio = far / (1 - far) if far < 1 else math.inf  # of the smaller one, so that 1 means twice as large
        for distance in APART:
            if ratio >= distance:
                out.setdefault(f"{distance:g}", step)
    return out
