"""Where the boxes and edges of a causal graph go: layers by longest path, ordered by barycentre.

Along the direction of reading a node's place is its layer; across it, places are found in turns: each box wants
the mean of its neighbours, and boxes of a layer keep their order and distance (isotonic regression does both at
once). Edges over several layers pass through empty places (dummies), so that no edge runs through a box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[str, str]
Point = tuple[float, float]

GAP_ALONG = 44.0  # room for a curve and its arrowhead
GAP_ACROSS = 14.0
LANE = 8.0  # width of the empty place that a long edge takes
SHORT = 10.0  # no straight piece shorter than this: an arrowhead must fit on the last one
SWEEPS = 12  # the order is stable after fewer; a graph has at most some 40 nodes


@dataclass(frozen=True)
class Box:
    """A node's rectangle, by its corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """Boxes by node, and for each edge the points that it passes (its ends lie on the boxes' borders)."""

    boxes: Mapping[str, Box]
    routes: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


def acyclic(nodes: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """The edges with those that close a cycle turned round (nodes earlier in the list are entered first)."""
    after: dict[str, list[str]] = {n: [] for n in nodes}
    for source, target in edges:
        after[source].append(target)
    state: dict[str, int] = {}
    turned: set[Edge] = set()
    for start in nodes:
        stack = [(start, iter(after[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            node, targets = stack[-1]
            reached = next(targets, None)
            if reached is None:
                state[node] = 2
                stack.pop()
            elif state.get(reached) == 1:
                turned.add((node, reached))
            elif reached not in state:
                state[reached] = 1
                stack.append((reached, iter(after[reached])))
    return [(t, s) if (s, t) in turned else (s, t) for s, t in edges]


def ranks(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The layer of each node: its longest path from a source; sources move close to what they lead to."""
    rank = dict.fromkeys(nodes, 0)
    for _ in nodes:
        changed = False
        for source, target in edges:
            if rank[target] < rank[source] + 1:
                rank[target] = rank[source] + 1
                changed = True
        if not changed:
            break
    targets = {t for _, t in edges}
    for node in nodes:
        ahead = [rank[t] for s, t in edges if s == node]
        if node not in targets and ahead:
            rank[node] = min(ahead) - 1
    return rank


def isotonic(wanted: Sequence[float]) -> list[float]:
    """The non-decreasing values closest to the wanted ones (pool adjacent violators).

    >>> isotonic([1.0, 3.0, 2.0])
    [1.0, 2.5, 2.5]
    """
    pools: list[tuple[float, int]] = []
    for value in wanted:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            last_total, last_count = pools.pop()
            total, count = total + last_total, count + last_count
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def place(
    nodes: Sequence[str], edges: Sequence[Edge], sizes: Mapping[str, tuple[float, float]], across: bool, margin: float
) -> Layout:
    """Boxes and routes; `across` reads from left to right, else from the top down."""
    straight = [e for e in dict.fromkeys(acyclic(nodes, edges)) if e[0] != e[1]]
    rank = ranks(nodes, straight)
    chains = {e: _chain(e, rank) for e in straight}
    layers = _layers(nodes, rank, chains)
    before, after = _neighbours(chains)
    _order(layers, before, after)

    def extent(cell: str, side: int) -> float:
        return sizes[cell][side] if cell in sizes else (LANE if side == (1 if across else 0) else 0.0)

    along, cross = (0, 1) if across else (1, 0)
    centre = _centres(layers, before, after, {c: extent(c, cross) for cells in layers for c in cells})
    low = min((centre[c] - extent(c, cross) / 2 for cells in layers for c in cells), default=0.0)
    high = max((centre[c] + extent(c, cross) / 2 for cells in layers for c in cells), default=0.0)
    depth = [max((extent(c, along) for c in cells), default=0.0) for cells in layers]
    start = [margin + sum(depth[:i]) + GAP_ALONG * i for i in range(len(layers))]

    def point(a: float, c: float) -> Point:
        return (a, c) if across else (c, a)

    boxes = {}
    for i, cells in enumerate(layers):
        for cell in cells:
            if cell in sizes:
                width, height = sizes[cell]
                x, y = point(start[i] + (depth[i] - sizes[cell][along]) / 2, centre[cell] - low + margin)
                boxes[cell] = Box(x, y - height / 2, width, height) if across else Box(x - width / 2, y, width, height)
    routes: dict[Edge, tuple[Point, ...]] = {}
    for edge in edges:
        straightened = edge if edge in chains else (edge[1], edge[0])
        if straightened not in chains:
            continue
        cells = chains[straightened]
        points = []
        for cell in cells:
            i, c = _rank_of(cell, rank), centre[cell] - low + margin
            borders = [start[i], start[i] + depth[i]]
            if cell in sizes:  # straight on to the layer's border, past wider boxes of the same layer
                half, middle = sizes[cell][along] / 2, start[i] + depth[i] / 2
                borders = [middle + half, borders[1]] if cell == cells[0] else [borders[0], middle - half]
                if borders[1] - borders[0] < SHORT:
                    borders = [middle + half if cell == cells[0] else middle - half]
            points += [point(a, c) for a in borders]
        routes[edge] = tuple(points) if straightened == edge else tuple(reversed(points))
    length = (start[-1] + depth[-1] if layers else 0.0) + margin
    width, height = point(length, high - low + 2 * margin)
    return Layout(boxes, routes, width, height)


def _chain(edge: Edge, rank: Mapping[str, int]) -> list[str]:
    """The cells that an edge passes: its ends and a dummy for each layer between."""
    source, target = edge
    between = [f"{i}\0{source}\0{target}" for i in range(rank[source] + 1, rank[target])]
    return [source, *between, target]


def _rank_of(cell: str, rank: Mapping[str, int]) -> int:
    return rank[cell] if cell in rank else int(cell.split("\0", 1)[0])


def _layers(nodes: Sequence[str], rank: Mapping[str, int], chains: Mapping[Edge, list[str]]) -> list[list[str]]:
    layers: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node in nodes:
        layers[rank[node]].append(node)
    for cells in chains.values():
        for cell in cells[1:-1]:
            layers[_rank_of(cell, rank)].append(cell)
    return layers


def _neighbours(chains: Mapping[Edge, list[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for cells in chains.values():
        for first, second in pairwise(cells):
            after.setdefault(first, []).append(second)
            before.setdefault(second, []).append(first)
    return before, after


def _order(layers: list[list[str]], before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> None:
    """Sort each layer by the mean place of its neighbours, down and up in turns; the fewest crossings win."""
    best, fewest = [list(cells) for cells in layers], _crossings(layers, after)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(len(layers)) if down else reversed(range(len(layers))):
            near = before if down else after
            position = {c: p / max(1, len(cells)) for cells in layers for p, c in enumerate(cells)}
            mean = {c: _mean([position[n] for n in near.get(c, ())], position[c]) for c in layers[i]}
            layers[i].sort(key=lambda c: mean[c])
        now = _crossings(layers, after)
        if now < fewest:
            best, fewest = [list(cells) for cells in layers], now
    layers[:] = best


def _crossings(layers: Sequence[Sequence[str]], after: Mapping[str, list[str]]) -> int:
    count = 0
    for cells, following in pairwise(layers):
        position = {c: p for p, c in enumerate(following)}
        ends = [[position[t] for t in after.get(c, ()) if t in position] for c in cells]
        for i, mine in enumerate(ends):
            count += sum(a > b for others in ends[i + 1 :] for a in mine for b in others)
    return count


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _centres(
    layers: Sequence[Sequence[str]],
    before: Mapping[str, list[str]],
    after: Mapping[str, list[str]],
    extent: Mapping[str, float],
) -> dict[str, float]:
    """The middle of each cell across the direction of reading."""
    centre: dict[str, float] = {}
    offsets: list[list[float]] = []
    for cells in layers:
        offset, edge = [], 0.0
        for cell in cells:
            offset.append(edge + extent[cell] / 2)
            edge += extent[cell] + GAP_ACROSS
        offsets.append(offset)
        centre |= {c: o - (edge - GAP_ACROSS) / 2 for c, o in zip(cells, offset, strict=True)}
    for sweep in range(SWEEPS):
        order = range(len(layers)) if sweep % 2 == 0 else reversed(range(len(layers)))
        for i in order:
            wanted = []
            for cell, offset_ in zip(layers[i], offsets[i], strict=True):
                near = [*before.get(cell, ()), *after.get(cell, ())]
                wanted.append(_mean([centre[n] for n in near], centre[cell]) - offset_)
            for cell, offset_, value in zip(layers[i], offsets[i], isotonic(wanted), strict=True):
                centre[cell] = value + offset_
    return centre
