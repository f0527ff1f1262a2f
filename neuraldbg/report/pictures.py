"""Two pictures of a run as inline SVG: the health of each layer over the steps, and the loss with the onset marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from neuraldbg.diagnosis import Diagnosis
from neuraldbg.events import EventType, SemanticEvent
from neuraldbg.report.graph import COLOURS, event_group
from neuraldbg.report.sentences import clean, figure
from neuraldbg.report.svg import FAINT, FONT, INK, text_width
from neuraldbg.report.text import shown_hypothesis

WIDTH = 920
NAME_WIDTH = 230
ROW = 18
ROWS = 40  # more do not fit a page that is read; those with events come first
POINTS = 400  # of a curve: more than one every two pixels shows nothing
HUGE = 1e300  # a loss beyond it is drawn there: the difference of two such numbers is not finite
ONSET = "#c62828"

_NO_LAYER = {
    EventType.GRADIENT_HEALTH_TRANSITION: "(all gradients)",
    EventType.ACTIVATION_REGIME_SHIFT: "(activations)",
    EventType.OPTIMIZER_INSTABILITY: "(loss and optimizer)",
    EventType.DATA_ANOMALY: "(data)",
}


def row_name(event: SemanticEvent) -> str:
    """The row of the health picture that an event belongs to."""
    return _NO_LAYER[event.event_type] if event.layer_name is None else event.layer_name or "(model)"


def spans(events: Sequence[SemanticEvent], end: int) -> list[tuple[int, int, SemanticEvent]]:
    """(first step, step after the last, event) of the unhealthy times of one row and event type, oldest first."""
    out: list[tuple[int, int, SemanticEvent]] = []
    current: SemanticEvent | None = None
    for event in sorted(events, key=lambda e: e.order):
        if current is not None:
            out.append((current.step, max(event.step, current.step + 1), current))
        current = None if event.is_recovery else event
    if current is not None:
        out.append((current.step, max(end, current.step + 1), current))
    return out


def health(diagnosis: Diagnosis) -> str:
    """The layer x step picture: a row for each layer in forward order, a bar while a state is unhealthy."""
    by_row: dict[str, list[SemanticEvent]] = {}
    for event in diagnosis.events:
        by_row.setdefault(row_name(event), []).append(event)
    order = [*_NO_LAYER.values(), "(model)", *diagnosis.facts.forward_order]
    names = [n for n in order if n in by_row or n in diagnosis.facts.forward_order]
    names += [n for n in by_row if n not in order]
    healthy = [n for n in names if n not in by_row]
    kept = set([n for n in names if n in by_row][:ROWS]) | set(healthy[: max(0, ROWS - len(by_row))])
    shown = [n for n in names if n in kept]
    if not shown:
        return ""
    last = max([diagnosis.steps, *(e.step + 1 for e in diagnosis.events)])
    plot = WIDTH - NAME_WIDTH - 16
    scale = plot / max(1, last)
    out = []
    for i, name in enumerate(shown):
        y = 6 + i * ROW
        out.append(_label(NAME_WIDTH - 8, y + 12.5, _short(name), INK if name in by_row else FAINT, "end", name))
        out.append(f'<rect x="{NAME_WIDTH}" y="{y + 2}" width="{plot}" height="{ROW - 4}" fill="#eef4ee"/>')
        out += _bars(by_row.get(name, []), y + 2, scale, last)
    bottom = 6 + len(shown) * ROW
    top = shown_hypothesis(diagnosis)
    if top:
        out.append(_onset(NAME_WIDTH + min(top.step, last) * scale, 4, bottom))
    for step in ticks(0, last):
        out.append(_label(NAME_WIDTH + step * scale, bottom + 16, f"{step:.0f}", FAINT, "middle"))
    hidden = len(names) - len(shown)
    note = f"step; {hidden} more rows are not shown" if hidden else "step"
    out.append(_label(NAME_WIDTH - 8, bottom + 16, note, FAINT, "end"))
    return _frame(WIDTH, bottom + 24, "Health of each layer over the steps", out)


def _bars(events: Sequence[SemanticEvent], y: float, scale: float, last: int) -> list[str]:
    """The bars of one row; where a layer has events of several types each type has its lane."""
    kinds = [k for k in EventType if any(e.event_type is k for e in events)]
    height = (ROW - 4) / max(1, len(kinds))
    out = []
    for lane, kind in enumerate(kinds):
        fill = COLOURS[event_group(kind)][1]
        for first, after, event in spans([e for e in events if e.event_type is kind], last):
            width = max(2.0, (after - first) * scale)
            x = min(NAME_WIDTH + first * scale, NAME_WIDTH + last * scale - 2)
            title = escape(clean(f"{event.text}, from step {first}"))
            out.append(
                f'<rect x="{x:.1f}" y="{y + lane * height:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'fill="{fill}" fill-opacity="0.8" stroke="#ffffff" stroke-width="0.8"><title>{title}</title></rect>'
            )
    return out


def loss_curve(diagnosis: Diagnosis) -> str:
    """The loss over the steps; on a log scale where it spans more than two decades."""
    finite = [(s, max(-HUGE, min(HUGE, v))) for s, v in diagnosis.series.get("loss", ()) if math.isfinite(v)]
    points = thinned(finite, POINTS)
    if len(points) < 2:
        return ""
    values = [v for _, v in points]
    log = min(values) > 0 and max(values) > 100 * min(values)
    low, high = (math.log10(min(values)), math.log10(max(values))) if log else (min(values), max(values))
    if high - low < 1e-12 * max(abs(high), abs(low), 1e-300):
        pad = 0.5 * abs(high) or 0.5
        low, high = low - pad, high + pad
    first, last = points[0][0], max(points[-1][0], diagnosis.steps - 1, points[0][0] + 1)
    left, top, right, bottom = 70.0, 12.0, WIDTH - 16.0, 188.0

    def x(step: float) -> float:
        return left + (step - first) / (last - first) * (right - left)

    def y(value: float) -> float:
        return bottom - ((math.log10(value) if log else value) - low) / (high - low) * (bottom - top)

    out = []
    for tick in ticks(low, high, 4):
        value = 10**tick if log else tick
        out.append(f'<path d="M{left} {y(value):.1f}H{right}" stroke="#e4e7ea"/>')
        out.append(_label(left - 8, y(value) + 4, figure(float(value)), FAINT, "end"))
    for step in ticks(first, last):
        out.append(_label(x(step), bottom + 18, f"{step:.0f}", FAINT, "middle"))
    out.append(_label(left, bottom + 34, "loss" + (" (log scale)" if log else "") + " over steps", FAINT, "start"))
    shown = shown_hypothesis(diagnosis)
    if shown and first <= shown.step <= last:
        at = x(shown.step)
        out.append(_onset(at, top, bottom))
        side, dx = ("start", 6) if at < (left + right) / 2 else ("end", -6)
        out.append(_label(at + dx, top + 12, f"onset, step {shown.step}", ONSET, side))
    path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in points)
    out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS["optimizer"][1]}" stroke-width="1.6"/>')
    return _frame(WIDTH, 230, "Loss over the steps", out)


def thinned(points: Sequence[tuple[int, float]], count: int) -> list[tuple[int, float]]:
    """At most about `count` points: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(points) <= count:
        return list(points)
    size = math.ceil(len(points) / (count // 2))
    out = []
    for i in range(0, len(points), size):
        stretch = points[i : i + size]
        ends = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        out += sorted(ends)
    return out


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers between two bounds.

    >>> ticks(0, 100)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    raw = (high - low) / max(1, count)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(base * m for m in (1, 2, 2.5, 5, 10) if base * m >= raw * 0.999)
    start = math.ceil(low / step - 1e-9)
    stop = math.floor(high / step + 1e-9)
    return [i * step for i in range(start, stop + 1)]


def _short(name: str) -> str:
    """The end of a long module name, which tells layers apart."""
    text = clean(name)
    while text_width(text, 11) > NAME_WIDTH - 16:
        text = "…" + text.lstrip("…")[max(1, len(text) // 12) :]
    return text


def _onset(x: float, top: float, bottom: float) -> str:
    return f'<path d="M{x:.1f} {top}V{bottom}" stroke="{ONSET}" stroke-width="1.5" stroke-dasharray="4 3"/>'


def _label(x: float, y: float, text: str, colour: str, anchor: str, title: str = "") -> str:
    told = f"<title>{escape(clean(title))}</title>" if title and clean(title) != text else ""
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="11" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {where}>{told}{escape(text)}</text>"


def _frame(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label={quoteattr(label)} font-family={quoteattr(FONT)}>'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts, "</svg>"])
