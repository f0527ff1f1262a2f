"""The causal graph: events linked by mechanism, time and structure, with the causes in front of their roots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx as nx

from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, GraphEdge, GraphNode
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.mechanism import BACKWARD, MECHANISM
from neuraldbg.record import RunFacts

MOST_EVENTS = 60  # a picture holds 40 nodes; beyond that nobody reads a graph
SLOW = frozenset(
    {"carried_gradient", "target_range", "nothing_trains", "summed_loss", "updates_stop", "stuck_parameter"}
)


def condensed(events: Iterable[SemanticEvent]) -> list[SemanticEvent]:
    """The first event of each layer and symptom, in order of (step, phase); recoveries are no causes."""
    first: dict[tuple[str | None, str], SemanticEvent] = {}
    for event in events:
        if event.is_recovery:
            continue
        key = (event.layer_name, event.symptom)
        if key not in first or event.order < first[key].order:
            first[key] = event
    return sorted(first.values(), key=lambda e: e.order)


def reaches(one: SemanticEvent, other: SemanticEvent, facts: RunFacts, window: int) -> str | None:
    """The kind of link from one event to a later one (mechanism, propagates), None where there is none."""
    delay = other.step - one.step
    if delay < 0 or (delay > window and one.symptom not in SLOW):
        return None
    order = {name: i for i, name in enumerate(facts.forward_order)}
    here, there = order.get(one.layer_name or ""), order.get(other.layer_name or "")
    known = here is not None and there is not None
    if one.symptom == other.symptom:
        if one.layer_name == other.layer_name or not known:
            return None
        assert here is not None and there is not None
        return "propagates" if (here > there) == (one.symptom in BACKWARD) else None
    if other.symptom not in MECHANISM.get(one.symptom, ()):
        return None
    if delay == 0 and other.phase < one.phase:
        return None
    same_pass = delay == 0 and known and one.symptom not in BACKWARD and other.symptom not in BACKWARD
    if same_pass and here is not None and there is not None and there < here:
        return None  # within one forward pass an effect is never in front of its cause
    return "mechanism"


def link(events: Sequence[SemanticEvent], facts: RunFacts, window: int) -> nx.DiGraph[int]:
    """Indices into `events` (ordered) as nodes; each event is linked to at most two causes, the nearest ones."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(events)))
    for j, effect in enumerate(events):
        links = [
            (i, kind)
            for i, cause in enumerate(events[:j])
            if cause.order <= effect.order and (kind := reaches(cause, effect, facts, window)) is not None
        ]
        propagated = [pair for pair in links if pair[1] == "propagates"][-1:]
        for i, kind in [*propagated, *[pair for pair in links if pair[1] == "mechanism"][-(2 - len(propagated)) :]]:
            graph.add_edge(i, j, kind=kind)
    return graph


def label(event: SemanticEvent) -> str:
    """An event as one step of a chain.

    >>> from neuraldbg.events import observed
    >>> label(observed("dead_units", 3, "fc1"))
    "units that are zero for every sample in 'fc1' (step 3)"
    """
    where = f" in '{event.layer_name}'" if event.layer_name else ""
    return f"{event.text}{where} (step {event.step})"


def causal_graph(
    events: Sequence[SemanticEvent], hypotheses: Sequence[CausalHypothesis], facts: RunFacts, window: int
) -> CausalGraph:
    """Condensed events and the unexplained causes, frozen."""
    shown = condensed(events)[:MOST_EVENTS]
    linked = link(shown, facts, window)
    counts: dict[tuple[str | None, str], int] = {}
    for event in events:
        key = (event.layer_name, event.symptom)
        counts[key] = counts.get(key, 0) + event.collapsed_count * (not event.is_recovery)
    nodes = [
        GraphNode(
            id=f"E{i}",
            label=label(e),
            kind=str(e.event_type),
            step=e.step,
            layer_name=e.layer_name,
            count=counts[e.layer_name, e.symptom],
        )
        for i, e in enumerate(shown)
    ]
    edges = [GraphEdge(f"E{i}", f"E{j}", data["kind"]) for i, j, data in linked.edges(data=True)]
    index = {(e.layer_name, e.symptom): i for i, e in enumerate(shown)}
    for n, hypothesis in enumerate(h for h in hypotheses if not h.metadata.get("explained_by")):
        nodes.append(GraphNode(f"C{n}", hypothesis.cause, "cause", hypothesis.step, hypothesis.layer_name))
        root = min(hypothesis.evidence, key=lambda e: e.order, default=None)
        if root is not None and (root.layer_name, root.symptom) in index:
            edges.append(GraphEdge(f"C{n}", f"E{index[root.layer_name, root.symptom]}", "causes"))
    return CausalGraph(tuple(nodes), tuple(edges))
