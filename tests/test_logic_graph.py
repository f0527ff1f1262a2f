"""logic_graph.md is true: its table names what each part imports, and its first picture draws ways that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "logic_graph.md").read_text()
VALUES = frozenset({"events", "record", "run", "diagnosis", "settings", "codec", "switch"})
ENTRANCES = ("__init__", "__main__")  # they hand names on and hold nothing


class Part(NamedTuple):
    """A folder or file of the hub, or the spokes: the parts of ours it imports, and the names taken from them."""

    imports: frozenset[str]
    names: frozenset[str]


def taken(source: str, package: str) -> set[tuple[str, str]]:
    """(part, name) of everything of ours that a source imports; the name is "" where the module itself is meant."""
    out: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            out.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            out.update((f"{base}.{alias.name}" if base == "neuraldbg" else base, alias.name) for alias in node.names)
    return {(module.split(".")[1], name) for module, name in out if module.startswith("neuraldbg.")}


def parts() -> dict[str, Part]:
    """Each part by the name that the table's last column uses."""
    found: dict[str, set[tuple[str, str]]] = {}
    for top, package in (("neuraldbg", "neuraldbg"), ("integrations", "neuraldbg.integrations")):
        for file in sorted((ROOT / top).rglob("*.py")):
            inside = file.relative_to(ROOT / top)
            name = "integrations" if top == "integrations" else inside.parts[0].removesuffix(".py")
            of = ".".join((package, *inside.parent.parts))
            found.setdefault(name, set()).update(taken(file.read_text(), of))
    known = {name for name in found if name not in ENTRANCES}
    return {
        name: Part(
            frozenset(part for part, _ in pairs if part != name and part in known),
            frozenset(what for _, what in pairs if what),
        )
        for name, pairs in found.items()
        if name in known
    }


PARTS = parts()


def table() -> dict[str, set[str]]:
    """Part -> what the last column of its row names."""
    rows = re.findall(r"^\| `(?:neuraldbg/)?(\w+)(?:\.py|/)` \|.*\|(.*)\|$", PAGE, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`(?! *\))(?=[,\s]|$)", re.sub(r"\([^)]*\)", "", last))) for name, last in rows}


def test_every_part_has_its_row_and_every_row_its_part() -> None:
    assert set(table()) == set(PARTS)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_row_names_what_its_part_imports_beside_the_values(name: str) -> None:
    found = set(PARTS[name].imports - VALUES)
    assert table().get(name) == found, f"the row of {name} in logic_graph.md should name: {sorted(found)}"


def test_the_values_know_nothing_that_is_no_value() -> None:
    """But for the two that the table names."""
    outward = {name: PARTS[name].imports - VALUES for name in VALUES}
    assert {name: found for name, found in outward.items() if found} == {"diagnosis": {"report"}}


@pytest.mark.parametrize(
    ("source", "package", "found"),
    [
        ("import torch", "neuraldbg.watch", set()),
        ("from neuraldbg import __version__", "neuraldbg", {("__version__", "__version__")}),
        ("from neuraldbg.run import Run, median", "neuraldbg.rules", {("run", "Run"), ("run", "median")}),
        ("def f():\n    from neuraldbg import report", "neuraldbg.watch", {("report", "report")}),
        ("from .governor import Governor", "neuraldbg.watch", {("watch", "Governor")}),
        ("from ..journal import Journal", "neuraldbg.watch", {("journal", "Journal")}),
    ],
)
def test_each_way_of_importing_would_be_noticed(source: str, package: str, found: set[tuple[str, str]]) -> None:
    assert taken(source, package) == found


def picture() -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Nodes (id -> part, for those that are a place of ours) and edges (from, label, to) of the first picture."""
    text = PAGE[PAGE.index("```mermaid") : PAGE.index("```", PAGE.index("```mermaid") + 3)]
    labels = dict(re.findall(r'(\w+)\["([^"]+)"\]', text))
    places = {node: label.rstrip("/").removesuffix(".py") for node, label in labels.items() if label[-1:] == "/"}
    places |= {node: label.removesuffix(".py") for node, label in labels.items() if label.endswith(".py")}
    bare = re.sub(r'\["[^"]+"\]', "", text)
    edges = re.findall(r'^\s*(\w+)(?: -- "?([^"\n]*?)"?)? --> (\w+)$', bare, re.MULTILINE)
    return places, edges


def wrong(places: Mapping[str, str], edges: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Edges between parts of ours that neither import each other nor both a value that the edge's label names."""
    out = []
    for source, label, target in edges:
        if source not in places or target not in places:
            continue
        a, b = PARTS[places[source]], PARTS[places[target]]
        carried = set(re.findall(r"\b[A-Z]\w+", label)) & a.names & b.names
        if not carried and places[target] not in a.imports and places[source] not in b.imports:
            out.append((source, label, target))
    return out


def test_the_first_picture_draws_only_ways_that_exist() -> None:
    places, edges = picture()
    assert len(edges) >= 12 and set(places.values()) <= set(PARTS)
    assert wrong(places, edges) == []


def test_a_way_that_does_not_exist_would_be_noticed() -> None:
    places = {"d": "detectors", "j": "journal", "r": "rules"}
    assert wrong(places, [("d", "Diagnosis", "j"), ("d", "SemanticEvent", "j"), ("r", "", "d")]) == [
        ("d", "Diagnosis", "j"),
        ("r", "", "d"),
    ]
