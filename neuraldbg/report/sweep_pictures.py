"""Pictures of a comparison as inline SVG: causes over a hyper-parameter, and when each cause began."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from neuraldbg.report.graph import COLOURS
from neuraldbg.report.pictures import ONSET, WIDTH, _frame, _label, ticks
from neuraldbg.report.sentences import clean, figure
from neuraldbg.report.svg import FAINT, INK, text_width
from neuraldbg.sweep.splits import is_numeric

if TYPE_CHECKING:
    from neuraldbg.sweep.compare import Comparison
    from neuraldbg.sweep.rows import Row
    from neuraldbg.sweep.splits import Split

LEFT, RIGHT, ROW = 230.0, 30.0, 34.0
MOST_ROWS = 8
MOST_COLUMNS = 12
MOST_MARKS = 250  # a row; more cover each other
NONE = "no cause"
COLOUR: Mapping[str, str] = {
    "failed": COLOURS["cause"][1],
    "warning": COLOURS["activation"][1],
    "healthy": COLOURS["data"][1],
}


def lanes(comparison: Comparison) -> list[tuple[str, list[Row]]]:
    """(cause, its trainings), commonest first, and last those without a cause."""
    names = [c.cause for c in comparison.causes[:MOST_ROWS]]
    out = [(name, [row for row in comparison.rows if row.cause == name]) for name in names]
    return [*out, (NONE, [row for row in comparison.rows if row.cause is None])]


def by_parameter(comparison: Comparison, name: str) -> str:
    """Each training as a mark: its cause the row, its value of the hyper-parameter the place; splits as lines."""
    values = [v for row in comparison.rows if (v := row.parameters.get(name)) is not None]
    cuts = {
        s.condition.value
        for cause in comparison.causes
        for s in cause.splits
        if s.condition.parameter == name and s.condition.sign in ("<=", ">")
    }
    if is_numeric(values):
        return _strip(comparison, name, [float(v) for v in values], [float(c) for c in cuts])
    return _cells(comparison, name, sorted({str(v) for v in values}))


class Scale:
    """Places numbers between two edges; on a log scale where they are positive and span two decades."""

    def __init__(self, values: Sequence[float]) -> None:
        finite = [v for v in values if math.isfinite(v)] or [0.0]
        self.log = min(finite) > 0 and max(finite) >= 100 * min(finite)
        low, high = self._on(min(finite)), self._on(max(finite))
        pad = 0.04 * (high - low) or 0.5
        self.low, self.high = low - pad, high + pad

    def _on(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def place(self, value: float) -> float:
        share = (self._on(value) - self.low) / (self.high - self.low)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[float]:
        if not self.log:
            return ticks(self.low, self.high, 6)
        first, last = math.ceil(self.low), math.floor(self.high)
        return [10.0**k for k in range(first, last + 1, max(1, (last - first) // 6))]


def _strip(comparison: Comparison, name: str, values: Sequence[float], cuts: Sequence[float]) -> str:
    scale = Scale(values)
    rows = lanes(comparison)
    bottom = 8 + len(rows) * ROW
    out = _ground(rows)
    for cut in cuts:
        out.append(_dashed(scale.place(cut), bottom))
    for k, (_, having) in enumerate(rows):
        known = [row for row in having if isinstance(row.parameters.get(name), (int, float))]
        for j, row in enumerate(known[:: max(1, -(-len(known) // MOST_MARKS))]):
            value = float(row.parameters[name])
            if math.isfinite(value):
                out.append(_mark(scale.place(value), 8 + k * ROW + _jitter(j), row))
    out += [_label(scale.place(t), bottom + 16, figure(t), FAINT, "middle") for t in scale.ticks()]
    out.append(_label(WIDTH - RIGHT, bottom + 32, name + (" (log scale)" if scale.log else ""), FAINT, "end"))
    return _frame(WIDTH, int(bottom + 40), f"Causes over {clean(name)}", out)


def _cells(comparison: Comparison, name: str, kinds: Sequence[str]) -> str:
    """A table: how many trainings of each value have each cause; the darker, the larger the value's share."""
    rows = lanes(comparison)
    shown = kinds[:MOST_COLUMNS]
    width = (WIDTH - LEFT - RIGHT) / max(1, len(shown))
    bottom = 8 + len(rows) * ROW
    total = {kind: sum(str(row.parameters.get(name)) == kind for row in comparison.rows) for kind in shown}
    out = _ground(rows)
    for k, (cause, having) in enumerate(rows):
        for j, kind in enumerate(shown):
            count = sum(str(row.parameters.get(name)) == kind for row in having)
            share = count / total[kind] if total[kind] else 0.0
            fill = COLOUR["healthy"] if cause == NONE else COLOUR["failed"]
            x, y = LEFT + j * width, 8 + k * ROW
            title = escape(f"{clean(kind)}: {count} of {total[kind]}")
            out.append(
                f'<rect x="{x + 2:.1f}" y="{y + 2:.1f}" width="{width - 4:.1f}" height="{ROW - 4:.1f}" fill="{fill}" '
                f'fill-opacity="{0.55 * share:.2f}"><title>{title}</title></rect>'
            )
            if count:
                out.append(_label(x + width / 2, y + ROW / 2 + 4, str(count), INK, "middle"))
    out += [
        _label(LEFT + (j + 0.5) * width, bottom + 16, _short(k, width), FAINT, "middle", k) for j, k in enumerate(shown)
    ]
    more = f"; {len(kinds) - len(shown)} more values" if len(kinds) > len(shown) else ""
    out.append(_label(WIDTH - RIGHT, bottom + 32, clean(name) + more, FAINT, "end"))
    return _frame(WIDTH, int(bottom + 40), f"Causes over {clean(name)}", out)


def timeline(comparison: Comparison) -> str:
    """When each cause began: a mark a training."""
    rows = [(cause, [row for row in having if row.step is not None]) for cause, having in lanes(comparison)]
    rows = [(cause, having) for cause, having in rows if having]
    if not rows:
        return ""
    scale = Scale([float(row.step or 0) for _, having in rows for row in having] + [0.0])
    bottom = 8 + len(rows) * ROW
    out = _ground(rows)
    for k, (_, having) in enumerate(rows):
        for j, row in enumerate(having[:: max(1, -(-len(having) // MOST_MARKS))]):
            out.append(_mark(scale.place(float(row.step or 0)), 8 + k * ROW + _jitter(j), row))
    out += [_label(scale.place(t), bottom + 16, f"{t:.0f}", FAINT, "middle") for t in scale.ticks() if t >= 0]
    out.append(_label(WIDTH - RIGHT, bottom + 32, "first step of the cause", FAINT, "end"))
    return _frame(WIDTH, int(bottom + 40), "When each cause began", out)


def _ground(rows: Sequence[tuple[str, list[Row]]]) -> list[str]:
    out = []
    for k, (cause, having) in enumerate(rows):
        y = 8 + k * ROW
        plot = WIDTH - LEFT - RIGHT
        out.append(f'<rect x="{LEFT}" y="{y + 2:.1f}" width="{plot:.1f}" height="{ROW - 4:.1f}" fill="#f4f6f8"/>')
        out.append(_label(LEFT - 8, y + ROW / 2 + 4, _short(f"{cause} ({len(having)})", LEFT - 14), INK, "end", cause))
    return out


def _jitter(j: int) -> float:
    """A place across the row, spread evenly by the golden ratio: equal values stay visible, pictures stay equal."""
    return 7.0 + (ROW - 14.0) * ((j * 0.618034) % 1.0)


def _mark(x: float, y: float, row: Row) -> str:
    said = f"{row.name}: {row.verdict}" + (f", {row.cause} since step {row.step}" if row.cause else "")
    colour = COLOUR.get(row.verdict, FAINT)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.65" stroke="#ffffff">'
        f"<title>{escape(clean(said))}</title></circle>"
    )


def _dashed(x: float, bottom: float) -> str:
    return f'<path d="M{x:.1f} 6V{bottom + 2:.1f}" stroke="{ONSET}" stroke-width="1.3" stroke-dasharray="4 3"/>'


def _short(text: str, width: float) -> str:
    line = clean(text)
    while text_width(line, 11) > width and len(line) > 2:
        line = line.rstrip("…")[:-1] + "…"
    return line


def pictured(comparison: Comparison, most: int = 6) -> list[str]:
    """The parameters worth a picture: those that go with a cause, the strongest first, else the first ones."""
    found: dict[str, float] = {}
    summaries = [*([comparison.overall] if comparison.overall else []), *comparison.causes]
    splits: list[Split] = [s for summary in summaries for s in summary.splits]
    for split in splits:
        name = split.condition.parameter
        found[name] = max(found.get(name, 0.0), split.gain)
    return (sorted(found, key=lambda name: -found[name]) or list(comparison.parameters))[:most]
