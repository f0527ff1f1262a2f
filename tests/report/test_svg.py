import itertools
import xml.etree.ElementTree as ElementTree

import pytest

from neuraldbg.diagnosis import CausalGraph, GraphEdge, GraphNode
from neuraldbg.report.layout import isotonic, place, ranks
from neuraldbg.report.svg import FRAME, PADDING_X, svg, text_width, wrap

NS = "{http://www.w3.org/2000/svg}"
NAMES = [f"encoder.layers.{i}.self_attention.out_proj" for i in range(60)]


def named_chain(count):
    """A cause and events in a chain, the first of which brings about the fourth and the last one too."""
    kinds = ("optimizer_instability", "activation_regime_shift", "gradient_health_transition", "data_anomaly")
    nodes = [GraphNode("cause", "learning_rate_too_high", "cause", 0)]
    nodes += [
        GraphNode(f"e{i}", f"units dead in '{NAMES[i]}' (step {i})", kinds[i % 4], i, NAMES[i])
        for i in range(count - 1)
    ]
    edges = [GraphEdge(a.id, b.id) for a, b in itertools.pairwise(nodes)]
    edges += [GraphEdge("e0", f"e{i}") for i in (3, count - 2) if 1 < i < count - 1]
    return CausalGraph(tuple(nodes), tuple(edges))


def tangle(count):
    """Each event has two causes a few events before it, some far before it."""
    nodes = [
        GraphNode(f"e{i}", f"observation {i} of a layer that is wide", "dead_units", i, NAMES[i], 2)
        for i in range(count)
    ]
    edges = [GraphEdge(f"e{i * 7 % max(1, i - 1)}", f"e{i}") for i in range(2, count)]
    edges += [GraphEdge(f"e{max(0, i - 3)}", f"e{i}", "propagates") for i in range(1, count)]
    return CausalGraph(tuple(nodes), tuple(edges))


def number(element, key):
    return float(element.attrib[key])


def boxes(root):
    """(x, y, width, height, texts) of each node."""
    out = []
    for g in root.iter(f"{NS}g"):
        rect = next(g.iter(f"{NS}rect"))
        numbers = [number(rect, k) for k in ("x", "y", "width", "height")]
        out.append((*numbers, g.findall(f"{NS}text")))
    return out


def crosses(box, x, y):
    left, top, width, height = box[:4]
    return left + 1 < x < left + width - 1 and top + 1 < y < top + height - 1


def curve(path):
    """Points on each cubic of a path."""
    words = path.replace("M", "").replace("C", "").split()
    numbers = [float(w) for w in words]
    start, rest = numbers[:2], numbers[2:]
    for i in range(0, len(rest), 6):
        p = [start, rest[i : i + 2], rest[i + 2 : i + 4], rest[i + 4 : i + 6]]
        for t in (k / 20 for k in range(21)):
            w = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            yield tuple(sum(a * q[axis] for a, q in zip(w, p, strict=True)) for axis in (0, 1))
        start = p[3]


GRAPHS = [(f"{build.__name__}-{n}", build(n)) for build in (named_chain, tangle) for n in (1, 3, 12, 40)]


@pytest.mark.parametrize("graph", [g for _, g in GRAPHS], ids=[name for name, _ in GRAPHS])
@pytest.mark.parametrize("frame", [FRAME, (930.0, 1200.0)])
def test_boxes_lie_apart_and_inside_and_their_texts_fit(graph, frame):
    root = ElementTree.fromstring(svg(graph, frame))
    width, height = number(root, "width"), number(root, "height")
    found = boxes(root)
    assert len(found) == len(graph.nodes)
    for x, y, w, h, texts in found:
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        assert texts
        for text in texts:
            assert text_width(text.text, number(text, "font-size")) <= w - 2 * PADDING_X + 0.2
            assert y + 10 <= number(text, "y") <= y + h - 4
    for a, b in itertools.combinations(found, 2):
        apart_x = a[0] + a[2] <= b[0] + 0.1 or b[0] + b[2] <= a[0] + 0.1
        apart_y = a[1] + a[3] <= b[1] + 0.1 or b[1] + b[3] <= a[1] + 0.1
        assert apart_x or apart_y


@pytest.mark.parametrize("graph", [g for _, g in GRAPHS], ids=[name for name, _ in GRAPHS])
def test_every_edge_is_drawn_and_none_runs_through_a_box(graph):
    root = ElementTree.fromstring(svg(graph))
    paths = [p for p in root.iter(f"{NS}path")]
    assert len(paths) == len({(e.source, e.target) for e in graph.edges})
    found = boxes(root)
    for path in paths:
        assert not [point for point in curve(path.get("d")) for box in found if crosses(box, *point)]


def test_an_edge_of_a_narrow_box_passes_beside_the_wide_ones_of_its_layer():
    sizes = {"narrow": (20.0, 20.0), "wide": (300.0, 60.0), "low": (300.0, 60.0), "end": (20.0, 20.0)}
    edges = [("narrow", "end"), ("wide", "end"), ("low", "end")]
    layout = place(list(sizes), edges, sizes, across=True, margin=5.0)
    narrow = layout.boxes["narrow"]
    row = narrow.y + narrow.height / 2
    wide_ends = layout.boxes["wide"].x + 300.0
    assert layout.routes["narrow", "end"][:2] == ((narrow.x + 20.0, row), (wide_ends, row))


def test_a_small_graph_stays_legible_in_a_short_frame(failed):
    root = ElementTree.fromstring(svg(failed.graph))
    assert number(root, "height") <= 150
    smallest = min(number(t, "font-size") for t in root.iter(f"{NS}text"))
    assert smallest * min(1.0, 1000 / number(root, "width")) >= 9


def test_a_long_chain_goes_across_a_short_frame_and_down_a_tall_one():
    short, tall = (ElementTree.fromstring(svg(named_chain(12), frame)) for frame in (FRAME, (930.0, 1200.0)))
    assert number(short, "width") > number(short, "height")
    assert number(tall, "width") < number(tall, "height")


def test_the_picture_has_a_white_ground_dark_text_and_nothing_from_outside(hostile):
    text = svg(hostile.graph)
    root = ElementTree.fromstring(text)
    ground = root[0]
    assert (ground.tag, ground.get("fill")) == (f"{NS}rect", "#ffffff")
    assert (ground.get("width"), ground.get("height")) == (root.get("width"), root.get("height"))
    assert {t.get("fill") for t in root.iter(f"{NS}text")} <= {"#1f2328", "#4d5661"}
    assert {e.tag.removeprefix(NS) for e in root.iter()} <= {"svg", "rect", "g", "title", "text", "path", "polygon"}
    assert text.count("http") == 1  # the namespace
    assert not {a for e in root.iter() for a in e.attrib if a.startswith("on") or "href" in a}


def test_hostile_names_are_text(hostile):
    root = ElementTree.fromstring(svg(hostile.graph))
    told = [t.text or "" for t in root.iter(f"{NS}title")]
    assert any("<script>alert(1)</script>" in t for t in told)
    assert any('"]; x[' in t for t in told)


def test_a_graph_of_sixty_shows_forty_boxes_and_counts_the_rest():
    root = ElementTree.fromstring(svg(named_chain(60)))
    found = boxes(root)
    assert len(found) == 40
    assert "and 21 more events" in [t.text for box in found for t in box[4]]


def test_an_empty_graph_and_a_cycle_can_be_drawn():
    assert "nothing to explain" in svg(CausalGraph())
    a, b = (GraphNode(i, i, "dead_units", 0) for i in "ab")
    loop = CausalGraph((a, b), (GraphEdge("a", "b"), GraphEdge("b", "a"), GraphEdge("a", "a"), GraphEdge("a", "gone")))
    assert len(boxes(ElementTree.fromstring(svg(loop)))) == 2


def test_the_same_graph_gives_the_same_picture():
    assert svg(tangle(30)) == svg(tangle(30))


@pytest.mark.parametrize(
    "text", ["a", "units that are zero for every sample", "x" * 500, "a.b_c." * 40, "層" * 50, "W" * 30]
)
def test_wrapped_lines_fit_and_lose_no_word_while_there_is_room(text):
    lines = wrap(text, 12.5, 150, 3)
    assert 1 <= len(lines) <= 3
    assert all(text_width(line, 12.5) <= 150 for line in lines)
    whole = wrap(text, 12.5, 150, 1000)
    assert "".join(whole).replace(" ", "") == text.replace(" ", "")
    assert lines[-1].endswith("…") == (len(whole) > 3)


def test_layers_follow_the_longest_path_and_a_source_moves_to_what_it_leads_to():
    assert ranks("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")]) == {"a": 0, "b": 1, "c": 2, "d": 1}


def test_isotonic_values_never_fall_and_keep_what_is_in_order():
    assert isotonic([1.0, 2.0, 2.5]) == [1.0, 2.0, 2.5]
    assert isotonic([3.0, 1.0, 5.0]) == [2.0, 2.0, 5.0]


def test_a_route_begins_and_ends_at_the_borders_of_its_boxes():
    layout = place("ab", [("a", "b")], {"a": (60.0, 20.0), "b": (60.0, 40.0)}, across=True, margin=5.0)
    (start, end), a, b = layout.routes["a", "b"], layout.boxes["a"], layout.boxes["b"]
    assert start == (a.x + a.width, a.y + a.height / 2)
    assert end == (b.x, b.y + b.height / 2)
