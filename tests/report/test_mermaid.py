import re

from neuraldbg.diagnosis import CausalGraph, GraphEdge, GraphNode
from neuraldbg.report.graph import caption, limited
from neuraldbg.report.mermaid import escape, mermaid

NODE = re.compile(r'^    (\w+)(\(\["[^"]*"\]\)|\["[^"]*"\]):::(\w+)$')
EDGE = re.compile(r"^    (\w+) (==>|-->|-\.->) (\w+)$")
STYLE = re.compile(r"^    classDef (\w+) fill:#\w{6},stroke:#\w{6},color:#\w{6}$")


def parsed(text):
    """(labels by id, edges), after every line was found to be a node, an edge or a class."""
    first, *lines = text.splitlines()
    assert first == "graph TD"
    nodes, edges, used, styled = {}, [], set(), set()
    for line in lines:
        if node := NODE.match(line):
            nodes[node[1]] = node[2]
            used.add(node[3])
        elif edge := EDGE.match(line):
            edges.append((edge[1], edge[3]))
        else:
            style = STYLE.match(line)
            assert style, line
            styled.add(style[1])
    assert used <= styled
    assert {i for e in edges for i in e} <= set(nodes)
    return nodes, edges


def test_an_empty_graph_is_still_a_graph():
    nodes, edges = parsed(mermaid(CausalGraph()))
    assert list(nodes) == ["none"] and not edges


def test_each_event_is_a_node_with_its_place_and_step(failed):
    nodes, edges = parsed(mermaid(failed.graph))
    assert nodes["n0"] == '(["learning rate too high<br/>step 20"])'
    assert nodes["n4"] == '["units that are zero for every sample<br/>encoder.act1 · step 22, 2 times"]'
    assert len(nodes) == len(failed.graph.nodes) and len(edges) == len(failed.graph.edges)


def test_hostile_labels_leave_every_line_a_node_an_edge_or_a_class(hostile):
    text = mermaid(hostile.graph)
    nodes, _ = parsed(text)
    assert len(nodes) == len(hostile.graph.nodes)
    assert "<script" not in text and "`" not in text and "|" not in text and "\x1b" not in text


def test_escape_leaves_words_of_all_scripts_and_writes_the_rest_as_entities():
    assert escape("encoder.fc_1 層 (x)") == "encoder.fc_1 層 (x)"
    assert escape('"];|`<&#:') == "#34;#93;#59;#124;#96;#60;#38;#35;#58;"


def test_a_graph_at_the_limit_is_whole_and_one_more_is_counted():
    def chain(n):
        nodes = tuple(GraphNode(f"e{i}", "x", "dead_units", i) for i in range(n))
        return CausalGraph(nodes, tuple(GraphEdge(f"e{i}", f"e{i + 1}") for i in range(n - 1)))

    whole, _ = parsed(mermaid(chain(40)))
    cut, edges = parsed(mermaid(chain(41)))
    assert len(whole) == 40 and "more" not in whole
    assert len(cut) == 40 and cut["more"] == '["and 2 more events"]'
    assert len(edges) == 38


def test_what_a_cause_reaches_is_kept_before_what_stands_apart():
    apart = tuple(GraphNode(f"a{i}", "x", "dead_units", i) for i in range(9))
    chain = (GraphNode("c", "x", "cause", 50), GraphNode("d", "x", "dead_units", 60))
    kept, left_out = limited(CausalGraph(apart + chain, (GraphEdge("c", "d"),)), 4)
    assert {n.id for n in kept.nodes} == {"c", "d", "a0"} and left_out == 8
    assert kept.edges == (GraphEdge("c", "d"),)


def test_an_edge_to_nowhere_is_left_out():
    kept, left_out = limited(CausalGraph((GraphNode("a", "x", "cause", 0),), (GraphEdge("a", "gone"),)), 40)
    assert kept.edges == () and left_out == 0


def test_a_caption_says_nothing_twice_and_keeps_what_differs():
    full = GraphNode("E", "units dead in 'fc1' (step 3)", "dead_units", 3, "fc1", 2)
    other = GraphNode("E", "units dead in 'fc1' (step 3)", "dead_units", 4, "fc2")
    assert caption(full) == ("units dead", "fc1", "step 3, 2 times")
    assert caption(other) == ("units dead in 'fc1' (step 3)", "fc2", "step 4")
    assert caption(GraphNode("E", "x", "dead_units", 0, "")) == ("x", "the model", "step 0")
