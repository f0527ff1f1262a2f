"""Mermaid itself reads the graphs (the npm package; `make test-services` installs it)."""

import html
import json
import subprocess
from pathlib import Path

import pytest

from neuraldbg.diagnosis import CausalGraph, GraphEdge, GraphNode
from neuraldbg.report.graph import caption
from neuraldbg.report.mermaid import mermaid

NODE = Path(__file__).parents[1] / "node"

pytestmark = pytest.mark.services


def parse(*texts):
    """What Mermaid's parser makes of each text."""
    done = subprocess.run(
        ["node", "parse.mjs"],
        cwd=NODE,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def shown(label):
    """A parsed label as a reader sees it: Mermaid keeps entities in a form of its own until it draws."""
    return html.unescape(label.replace("ﬂ°°", "&#").replace("ﬂ°", "&").replace("¶ß", ";"))


def test_a_graph_with_an_unescaped_label_is_refused():
    (answer,) = parse('graph TD\n    n0[""]; x["]\n')
    assert "Parse error" in answer["error"]


def test_every_graph_is_read_as_it_was_meant(failed, hostile):
    ring = tuple(GraphNode(f"e{i}", f"event {i}", "dead_units", i) for i in range(60))
    long = CausalGraph(ring, tuple(GraphEdge(f"e{i}", f"e{(i + 1) % 60}") for i in range(60)))
    graphs = [failed.graph, hostile.graph, long, CausalGraph()]
    answers = parse(*map(mermaid, graphs))
    assert [a.get("error") for a in answers] == [None] * 4
    assert {a["type"] for a in answers} == {"flowchart-v2"}
    assert [len(a["nodes"]) for a in answers] == [len(failed.graph.nodes), len(hostile.graph.nodes), 40, 1]
    for graph, answer in zip(graphs[:2], answers[:2], strict=True):
        for i, node in enumerate(graph.nodes):
            title, *place = caption(node)
            where = " · ".join(p for p in place if p)
            assert shown(answer["nodes"][f"n{i}"]) == f"{title}<br>{where}"
        ids = {node.id: f"n{i}" for i, node in enumerate(graph.nodes)}
        assert answer["edges"] == [[ids[e.source], ids[e.target]] for e in graph.edges]


def test_the_fence_in_the_markdown_holds_the_same_graph(hostile):
    from neuraldbg.report.markdown import markdown

    fenced = markdown(hostile).split("```mermaid\n")[1].split("\n```")[0]
    (answer,) = parse(fenced)
    assert len(answer["nodes"]) == len(hostile.graph.nodes)
