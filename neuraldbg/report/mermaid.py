"""The causal graph in Mermaid's language: a `graph TD` of bounded size that any label leaves valid."""

from __future__ import annotations

from neuraldbg.diagnosis import CausalGraph
from neuraldbg.report.graph import COLOURS, caption, group, limited

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,()_-/+*'·…")


def escape(text: str) -> str:
    """Mermaid's own numeric entities for all that its grammar, Markdown or HTML could read.

    The colon is among them: Mermaid cuts the semicolon off an entity in a line that looks like `style ...:`.

    >>> escape('a"]; b')
    'a#34;#93;#59; b'
    """
    return "".join(c if c in _PLAIN or c.isalpha() else f"#{ord(c)};" for c in text)


def mermaid(graph: CausalGraph, limit: int = 40) -> str:
    """The graph as text, at most `limit` nodes; the last one says how many were left out."""
    small, left_out = limited(graph, limit)
    out = ["graph TD"]
    ids = {node.id: f"n{i}" for i, node in enumerate(small.nodes)}
    for node in small.nodes:
        title, *place = caption(node)
        where = " · ".join(p for p in place if p)
        label = escape(title) + (f"<br/>{escape(where)}" if where else "")
        shape = f'(["{label}"])' if node.kind == "cause" else f'["{label}"]'
        out.append(f"    {ids[node.id]}{shape}:::{group(node)}")
    if left_out:
        out.append(f'    more["and {left_out} more events"]:::other')
    if not small.nodes and not left_out:
        out.append('    none["nothing to explain"]:::other')
    for edge in small.edges:
        arrow = {"causes": "==>", "propagates": "-.->"}.get(edge.kind, "-->")
        out.append(f"    {ids[edge.source]} {arrow} {ids[edge.target]}")
    for name, (fill, line) in COLOURS.items():
        out.append(f"    classDef {name} fill:{fill},stroke:{line},color:#1f2328")
    return "\n".join(out) + "\n"
