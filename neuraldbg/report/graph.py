"""What Mermaid and SVG share: which nodes are kept, what they say, which colour they have."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from neuraldbg.diagnosis import CausalGraph, GraphNode
from neuraldbg.events import SYMPTOMS, EventType
from neuraldbg.report.sentences import CAUSES, clean

# (fill, line): light grounds that carry dark text, told apart by lightness and hue
COLOURS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cause": ("#ffd8d3", "#c62828"),
        "gradient": ("#e7defb", "#6a3fc0"),
        "activation": ("#ffedc2", "#a86b00"),
        "optimizer": ("#d6e9ff", "#1f6fc4"),
        "data": ("#d5f2dc", "#23803c"),
        "other": ("#eef0f2", "#6b7480"),
    }
)

_GROUP: Mapping[str, str] = MappingProxyType(
    {
        EventType.GRADIENT_HEALTH_TRANSITION: "gradient",
        EventType.ACTIVATION_REGIME_SHIFT: "activation",
        EventType.OPTIMIZER_INSTABILITY: "optimizer",
        EventType.DATA_ANOMALY: "data",
    }
)


def group(node: GraphNode) -> str:
    """The colour class of a node: its kind is "cause", an event type or a symptom."""
    if node.kind == "cause":
        return "cause"
    symptom = SYMPTOMS.get(node.kind)
    return _GROUP.get(str(symptom.event_type) if symptom else node.kind, "other")


def event_group(event_type: str) -> str:
    return _GROUP.get(event_type, "other")


def caption(node: GraphNode) -> tuple[str, str, str]:
    """(what, where, when) of a node.

    Labels may end in the place and the step, as links of a chain do; on lines of their own these survive where a long
    text is cut, and nothing is said twice.

    >>> caption(GraphNode("E0", "dead units in 'fc1' (step 3)", "dead_units", 3, "fc1", 2))
    ('dead units', 'fc1', 'step 3, 2 times')
    """
    label = node.label.removesuffix(f" (step {node.step})").removesuffix(f" in '{node.layer_name}'")
    title = clean(label, 160)
    if node.kind == "cause" and title in CAUSES:
        title = title.replace("_", " ")
    name = "" if node.layer_name is None else clean(node.layer_name, 80) or "the model"
    when = [] if f"step {node.step}" in title else [f"step {node.step}"]
    if node.count > 1:
        when.append(f"{node.count} times")
    return title, "" if name in title else name, ", ".join(when)


def limited(graph: CausalGraph, limit: int) -> tuple[CausalGraph, int]:
    """At most `limit` nodes (one is spared for the count of the rest): causes first, then what they reach."""
    if len(graph.nodes) <= limit:
        known = {n.id for n in graph.nodes}
        edges = tuple(e for e in graph.edges if e.source in known and e.target in known)
        return CausalGraph(graph.nodes, edges), 0
    by_id = {n.id: n for n in graph.nodes}
    reach: dict[str, list[str]] = {}
    for edge in graph.edges:
        reach.setdefault(edge.source, []).append(edge.target)
    kept: dict[str, None] = {}
    starts = sorted(graph.nodes, key=lambda n: (n.kind != "cause", n.step))
    for start in starts:
        queue = deque([start.id])
        while queue and len(kept) < limit - 1:
            current = queue.popleft()
            if current in kept or current not in by_id:
                continue
            kept[current] = None
            queue.extend(sorted(reach.get(current, ()), key=lambda i: by_id[i].step if i in by_id else 0))
    nodes = tuple(n for n in graph.nodes if n.id in kept)
    edges = tuple(e for e in graph.edges if e.source in kept and e.target in kept)
    return CausalGraph(nodes, edges), len(graph.nodes) - len(nodes)
