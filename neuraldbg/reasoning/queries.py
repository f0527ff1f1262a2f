"""The questions of the public surface, over a Diagnosis: pure functions that the session class delegates to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from neuraldbg.diagnosis import FAILURE_TYPES, CausalHypothesis, Diagnosis, Hypotheses, Verdict
from neuraldbg.events import EventType, SemanticEvent
from neuraldbg.reasoning.graph import condensed, label, link
from neuraldbg.reasoning.mechanism import failure_of

__all__ = ["chain", "collapse", "explain", "get_hypotheses", "root_causes"]

EVENT_TYPES = tuple(str(e) for e in EventType)
# Steps that a link spans: `coupling_window` as it is by default, for a diagnosis does not carry its settings.
WINDOW = 5


def _known(name: str, names: Sequence[str]) -> str:
    text = str(name)
    if text not in names:
        raise ValueError(f"failure type {text!r} is unknown; use one of: {', '.join(names)}")
    return text


def _passes(hypothesis: CausalHypothesis, name: str) -> bool:
    """Whether this failure or event type is the hypothesis's own or on its chain."""
    return name == hypothesis.failure_type or name in (
        *hypothesis.metadata.get("chain_failures", ()),
        *hypothesis.metadata.get("chain_events", ()),
    )


def explain(diagnosis: Diagnosis, failure_type: str | None = None) -> Hypotheses:
    """On a failed run all hypotheses, best first; with a type, those of it or whose chain passes it.

    Raises ValueError for a type that is none, of a failure or an event.
    """
    name = None if failure_type is None else _known(failure_type, (*FAILURE_TYPES, *EVENT_TYPES))
    if diagnosis.verdict is not Verdict.FAILED:
        return Hypotheses((), _state(diagnosis))
    if name is None:
        return Hypotheses(diagnosis.hypotheses)
    found = [h for h in diagnosis.hypotheses if _passes(h, name)]
    return Hypotheses(found, f"the run failed, but not by {name}")


def get_hypotheses(diagnosis: Diagnosis) -> Hypotheses:
    """`explain`, and the notes of a healthy or warning run too."""
    found = [*explain(diagnosis), *diagnosis.notes]
    return Hypotheses(sorted(found, key=lambda h: -h.confidence), _state(diagnosis))


def _state(diagnosis: Diagnosis) -> str:
    return "nothing was seen of a training" if diagnosis.saw_nothing else f"the run is {diagnosis.verdict}"


def _standing(diagnosis: Diagnosis) -> list[CausalHypothesis]:
    return [h for h in (diagnosis.hypotheses or diagnosis.notes) if not h.metadata.get("explained_by")]


def root_causes(diagnosis: Diagnosis) -> list[SemanticEvent]:
    """The earliest event of each causal chain, each once, in order."""
    roots: list[SemanticEvent] = []
    for hypothesis in _standing(diagnosis):
        root = min(hypothesis.evidence, key=lambda e: e.order, default=None)
        if root is not None and root not in roots:
            roots.append(root)
    return sorted(roots, key=lambda e: e.order)


def chain(diagnosis: Diagnosis, failure_type: str) -> list[str]:
    """The chain to that failure, cause first; empty where nothing of the kind happened.

    Raises ValueError for a type that is none, of a failure or an event.
    """
    name = _known(failure_type, (*FAILURE_TYPES, *EVENT_TYPES))
    for hypothesis in _standing(diagnosis):
        steps = list(hypothesis.causal_chain)
        kinds = list(
            zip(
                hypothesis.metadata.get("chain_failures", ()), hypothesis.metadata.get("chain_events", ()), strict=False
            )
        )
        last = max((i for i, kind in enumerate(kinds) if name in kind), default=None)
        if last is not None:
            return steps[: max(last, 1) + 1]
    return _chain_of_events(diagnosis, name)


def _chain_of_events(diagnosis: Diagnosis, name: str) -> list[str]:
    """Without a hypothesis: from the first event of this type back along the links of the graph."""
    events = condensed(diagnosis.events)
    at = next((i for i, e in enumerate(events) if name in (failure_of(e), str(e.event_type))), None)
    if at is None:
        return []
    linked, path = link(events, diagnosis.facts, WINDOW), [at]
    while before := sorted(linked.predecessors(path[0])):
        path.insert(0, before[0])
    return [label(events[i]) for i in path]


def collapse(events: Iterable[SemanticEvent]) -> list[SemanticEvent]:
    """Events merged per layer and type: the last state reached, the span of steps and how many there were."""
    groups: dict[tuple[str | None, str], list[SemanticEvent]] = {}
    for event in events:
        groups.setdefault((event.layer_name, str(event.event_type)), []).append(event)
    return sorted((_merged(group) for group in groups.values()), key=lambda e: e.order)


def _merged(group: Sequence[SemanticEvent]) -> SemanticEvent:
    """The last unhealthy state stands for the group; when it was left again is in the metadata."""
    group = sorted(group, key=lambda e: e.order)
    first, last = group[0], group[-1]
    if len(group) == 1:
        return first
    stands = next((e for e in reversed(group) if not e.is_recovery), last)
    spans = [e.step_range or (e.step, e.step) for e in group]
    metadata = {**stands.metadata, "recovered": last.step} if last.is_recovery else stands.metadata
    return replace(
        stands,
        step=first.step,
        from_state=first.from_state,
        confidence=max(e.confidence for e in group),
        metadata=metadata,
        step_range=(min(a for a, _ in spans), max(b for _, b in spans)),
        collapsed_count=sum(e.collapsed_count for e in group),
    )
