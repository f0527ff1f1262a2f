"""The causal graph as one SVG picture: standard library only, no script, nothing from outside.

It must stay legible where trackers show it 150 pixels high: of the two directions of reading the one that needs
less shrinking is taken.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from neuraldbg.diagnosis import CausalGraph, GraphNode
from neuraldbg.report.graph import COLOURS, caption, group, limited
from neuraldbg.report.layout import Edge, Layout, Point, place

FONT = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK, FAINT, LINE = "#1f2328", "#4d5661", "#7a838d"
TITLE_SIZE, PLACE_SIZE = 12.5, 11.0
LINE_HEIGHT = 15.0
PADDING_X, PADDING_Y = 10.0, 8.0
TEXT_WIDTH = 150.0  # a box is at most this wide, less its padding
TITLE_LINES = 3
FRAME = (1000.0, 150.0)  # the short frame of a run's page
LEGIBLE = 0.75  # the smallest text is then 8 pixels: no reason to read downwards
MARGIN = 12.0
LIMIT = 40

# widths in em of DejaVu Sans, the widest of the usual fallbacks: what fits in it fits in Helvetica
_WIDTHS = {
    **dict.fromkeys("ijl|'", 0.30),
    **dict.fromkeys(" ,.:;`·", 0.34),
    **dict.fromkeys("frt()[]!/\\-", 0.42),
    **dict.fromkeys("mMW@%", 0.98),
    **dict.fromkeys("w+=<>~^…", 0.86),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&#", 0.76),
}


def text_width(text: str, size: float) -> float:
    """An upper estimate of the width in pixels; characters beyond ASCII count as full squares."""
    return size * sum(_WIDTHS.get(c, 0.64 if c.isascii() else 1.05) for c in text)


def wrap(text: str, size: float, width: float, lines: int) -> list[str]:
    """The text in at most so many lines that each fit the width; what is left over ends in an ellipsis."""
    rest, out = text, []
    while rest:
        cut = _fit(rest, size, width)
        if cut == len(rest):
            out.append(rest)
            break
        if len(out) == lines - 1:
            out.append(rest[: _fit(rest, size, width - text_width("…", size))].rstrip() + "…")
            break
        # break after a space, else after a joint of a dotted or underscored name, else anywhere
        for joints in (" ", "._/-"):
            at = max(rest.rfind(j, 0, cut) + 1 for j in joints)
            if at > cut // 3:
                cut = at
                break
        out.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return out


def _fit(text: str, size: float, width: float) -> int:
    """How many characters fit; one always does."""
    used = 0.0
    for i, c in enumerate(text):
        used += text_width(c, size)
        if used > width:
            return max(1, i)
    return len(text)


def svg(graph: CausalGraph, frame: tuple[float, float] = FRAME) -> str:
    """The picture as text, `<svg ...>...</svg>`; it is laid out for a frame of this width and height."""
    small, left_out = limited(graph, LIMIT)
    nodes = list(small.nodes)
    if left_out:
        last = max(n.step for n in graph.nodes)
        nodes.append(GraphNode("\0more", f"and {left_out} more events", "other", last))
    if not nodes:
        return _document(
            220, 48, "nothing to explain", [_text(110, 29, "nothing to explain", PLACE_SIZE, FAINT, "middle")]
        )
    texts = {n.id: _texts(n) for n in nodes}
    sizes = {i: _size(*texts[i]) for i in texts}
    edges: list[Edge] = list(dict.fromkeys((e.source, e.target) for e in small.edges))
    ids = [n.id for n in sorted(nodes, key=lambda n: (n.kind != "cause", n.step))]
    options = [place(ids, edges, sizes, across, MARGIN) for across in (True, False)]
    shrunk = [min(1.0, frame[0] / o.width, frame[1] / o.height) for o in options]
    across = shrunk[0] >= LEGIBLE or shrunk[0] >= shrunk[1]
    layout = options[0] if across else options[1]
    kinds = {(e.source, e.target): e.kind for e in small.edges}
    parts = [_edge(points, across, kinds[edge]) for edge, points in layout.routes.items()]
    parts += [_box(n, *texts[n.id], layout) for n in nodes]
    return _document(layout.width, layout.height, _told(nodes), parts)


def _texts(node: GraphNode) -> tuple[list[str], list[str]]:
    title, name, when = caption(node)
    together = " · ".join(p for p in (name, when) if p)
    if text_width(together, PLACE_SIZE) <= TEXT_WIDTH:
        where = [together] if together else []
    else:  # the step is never what is cut off
        where = [line for part in (name, when) for line in wrap(part, PLACE_SIZE, TEXT_WIDTH, 2)]
    return wrap(title, TITLE_SIZE, TEXT_WIDTH, TITLE_LINES), where


def _size(title: list[str], where: list[str]) -> tuple[float, float]:
    widest = max([text_width(t, TITLE_SIZE) for t in title] + [text_width(t, PLACE_SIZE) for t in where])
    return round(widest + 2 * PADDING_X, 1), (len(title) + len(where)) * LINE_HEIGHT + 2 * PADDING_Y


def _told(nodes: list[GraphNode]) -> str:
    """The picture in words, for those who do not see it."""
    return "Causal graph: " + "; ".join(", ".join(p for p in caption(n) if p) for n in nodes[:12])


def _document(width: float, height: float, label: str, parts: list[str]) -> str:
    w, h = f"{width:.0f}", f"{height:.0f}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        f"aria-label={quoteattr(label)} font-family={quoteattr(FONT)}>"
    )
    return "\n".join([head, f'<rect width="{w}" height="{h}" fill="#ffffff"/>', *parts, "</svg>"]) + "\n"


def _text(
    x: float, y: float, text: str, size: float, colour: str = INK, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _box(node: GraphNode, title: list[str], where: list[str], layout: Layout) -> str:
    box = layout.boxes[node.id]
    fill, line = COLOURS[group(node)]
    cause = node.kind == "cause"
    parts = [
        "<g>",
        f"<title>{escape(', '.join(p for p in caption(node) if p))}</title>",
        f'<rect class="node" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{12 if cause else 5}" fill="{fill}" stroke="{line}" stroke-width="{2 if cause else 1.2}"/>',
    ]
    y = box.y + PADDING_Y + LINE_HEIGHT * 0.75
    for text in title:
        parts.append(_text(box.x + PADDING_X, y, text, TITLE_SIZE))
        y += LINE_HEIGHT
    for text in where:
        parts.append(_text(box.x + PADDING_X, y, text, PLACE_SIZE, FAINT))
        y += LINE_HEIGHT
    return "\n".join([*parts, "</g>"])


def _edge(points: tuple[Point, ...], across: bool, kind: str) -> str:
    """Cubic curves that leave and enter along the direction of reading, and an arrowhead at the end."""
    (x, y), *rest = points
    ex, ey = points[-1]
    px, py = points[-2]
    along = ex - px if across else ey - py
    back = -7.0 if along >= 0 else 7.0
    tip = (ex + back, ey) if across else (ex, ey + back)  # the curve ends where the arrowhead begins
    path = f"M{x:.1f} {y:.1f}"
    for nx, ny in [*rest[:-1], tip]:
        if across:
            middle = (x + nx) / 2
            path += f" C{middle:.1f} {y:.1f} {middle:.1f} {ny:.1f} {nx:.1f} {ny:.1f}"
        else:
            middle = (y + ny) / 2
            path += f" C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}"
        x, y = nx, ny
    (tx, ty) = tip
    wings = ((tx, ty - 4), (tx, ty + 4)) if across else ((tx - 4, ty), (tx + 4, ty))
    head = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((ex, ey), *wings))
    dash = ' stroke-dasharray="4 3"' if kind == "propagates" else ""
    width = 2.0 if kind == "causes" else 1.3
    return (
        f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="{width}"{dash}/>'
        f'<polygon points="{head}" fill="{LINE}"/>'
    )
