"""The page and the picture that `benchmarks.accuracy` writes, from graded runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.grading import Row, bins, calibration_error, scores

SPLITS = ("fit", "check", "test")
SIZE, EDGE = 320, 44

INTRO = """# Accuracy

Written by `make bench-accuracy` (`python -m benchmarks.accuracy`); do not edit.

The corpus (`benchmarks/corpus/`, version {version}) labels itself: plain PyTorch trainings of {programs} base programs,
each run with faults switched in at several strengths, some from the start and some late, and in many healthy variants.
A fault is in it only if the training suffers against the same program and seed without it; a healthy run only if it
learns. The split goes by base program: rules and confidences may be made in view of *fit* and *check*; *test* has
other programs. A detection is the verdict `failed`. A cause, layer or onset is right as in the label, a missed failure
counts as wrong in all of them; an onset may miss its window by two steps. A false alarm is a healthy run that is
called failed or gets a hypothesis. Intervals are exact (Clopper-Pearson), 95 %. Layers are graded where the fault has
one. Two faults at once: either may be named first.
"""


def table(rows: Sequence[Row]) -> str:
    """Figures by split, as Markdown."""
    parts = [s for s in SPLITS if any(r.split == s for r in rows)]
    groups = {s: [r for r in rows if r.split == s] for s in parts}
    lines = ["| | " + " | ".join(parts) + " |", "| --- |" + " --- |" * len(parts)]
    counted = {s: f"{sum(not r.healthy for r in g)} / {sum(r.healthy for r in g)}" for s, g in groups.items()}
    lines.append("| runs, faulty / healthy | " + " | ".join(counted.values()) + " |")
    found = {s: scores(g) for s, g in groups.items()}
    for name in next(iter(found.values())):
        lines.append(f"| {name} | " + " | ".join(str(found[s][name]) for s in parts) + " |")
    errors = {s: [r.onset_error for r in g if r.onset_error is not None] for s, g in groups.items()}
    lines.append("| median onset error, steps | " + " | ".join(_median(errors[s]) for s in parts) + " |")
    lines.append("| calibration error | " + " | ".join(f"{calibration_error(groups[s]):.3f}" for s in parts) + " |")
    return "\n".join(lines)


def _median(values: Sequence[int]) -> str:
    return f"{statistics.median(values):g}" if values else "-"


def by_cause(rows: Sequence[Row]) -> str:
    lines = [
        "| cause | runs | detected | cause right | among three | layer right | onset right | else said |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cause in sorted({r.causes[0] for r in rows if not r.healthy}):
        found = [r for r in rows if r.causes[:1] == (cause,)]
        s = scores(found)
        said: dict[str, int] = {}
        for r in found:
            if r.top is not None and not r.cause():
                said[r.top.cause] = said.get(r.top.cause, 0) + 1
        others = ", ".join(f"{name} {n}" for name, n in sorted(said.items(), key=lambda p: -p[1])[:3])
        cells = [s[k] for k in ("detection", "cause, first", "cause, first three", "layer, first", "onset")]
        shown = " | ".join(f"{100 * c.value:.0f} %" if c.of else "-" for c in cells)
        lines.append(f"| {cause} | {len(found)} | {shown} | {others} |")
    return "\n".join(lines)


def alarms(rows: Sequence[Row]) -> str:
    found = [r for r in rows if r.alarm]
    if not found:
        return "None."
    lines = ["| run | said | confidence |", "| --- | --- | --- |"]
    for r in found:
        first = r.answers[0] if r.answers else None
        lines.append(f"| {r.name} | {first.cause if first else r.error or r.verdict} | {_sure(r)} |")
    return "\n".join(lines)


def _sure(row: Row) -> str:
    return f"{row.answers[0].confidence:.2f}" if row.answers else "-"


def written(rows: Sequence[Row], version: int) -> str:
    programs = len({r.name.partition("/")[0] for r in rows})
    test = [r for r in rows if r.split == "test"]
    return "\n".join(
        [
            INTRO.format(version=version, programs=programs),
            table(rows),
            "",
            "## Test split, by cause",
            "",
            by_cause(test),
            "",
            "## All splits, by cause",
            "",
            by_cause(rows),
            "",
            "## Confidence (test split)",
            "",
            "What was said, and how often the cause was right; the size of a point is the number of runs.",
            "",
            "![Reliability diagram](../images/reliability.svg)",
            "",
            "## False alarms (all splits)",
            "",
            alarms(rows),
            "",
        ]
    )


def picture(rows: Sequence[Row]) -> str:
    """The reliability diagram."""
    span = SIZE - 2 * EDGE

    def at(x: float, y: float) -> tuple[float, float]:
        return round(EDGE + span * x, 1), round(SIZE - EDGE - span * y, 1)

    (x0, y0), (x1, y1) = at(0, 0), at(1, 1)
    found = bins(rows)
    most = max((b.count for b in found), default=1)
    points = [at(b.said, b.right) for b in found]
    line = " ".join(f"{x},{y}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{3 + 7 * (b.count / most) ** 0.5:.1f}" fill="#2563a8">'
        f"<title>said {b.said:.2f}, right {b.right:.2f}, {b.count} runs</title></circle>"
        for (x, y), b in zip(points, found, strict=True)
    )
    ticks = "".join(
        f'<text x="{at(v, 0)[0]}" y="{y0 + 16}" text-anchor="middle">{v:g}</text>'
        f'<text x="{x0 - 8}" y="{at(0, v)[1] + 4}" text-anchor="end">{v:g}</text>'
        for v in (0, 0.5, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" '
        'font-family="sans-serif" font-size="12" role="img">'
        f"<title>Reliability: expected calibration error {calibration_error(rows):.3f}</title>"
        f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>'
        f'<rect x="{x0}" y="{y1}" width="{span}" height="{span}" fill="none" stroke="#999"/>'
        f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#999" stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#2563a8" stroke-width="1.5"/>{dots}{ticks}'
        f'<text x="{SIZE / 2}" y="{SIZE - 8}" text-anchor="middle">confidence</text>'
        f'<text x="14" y="{SIZE / 2}" text-anchor="middle" transform="rotate(-90 14 {SIZE / 2})">share right</text>'
        "</svg>\n"
    )
