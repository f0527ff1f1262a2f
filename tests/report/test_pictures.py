import dataclasses
import math
import xml.etree.ElementTree as ElementTree

import pytest

from neuraldbg.events import observed, recovered
from neuraldbg.report.pictures import NAME_WIDTH, POINTS, ROWS, health, loss_curve, spans, thinned, ticks
from neuraldbg.report.svg import text_width

NS = "{http://www.w3.org/2000/svg}"


def number(element, key):
    return float(element.attrib[key])


def labels(text):
    return [t.findtext(f"{NS}title") or t.text for t in ElementTree.fromstring(text).iter(f"{NS}text")]


def bars(text):
    """(x, width) of each bar: the rectangles with a title."""
    found = [r for r in ElementTree.fromstring(text).iter(f"{NS}rect") if r.find(f"{NS}title") is not None]
    return [(number(r, "x"), number(r, "width")) for r in found]


def test_a_healthy_layer_has_a_row_and_no_bar(healthy):
    text = health(healthy)
    assert labels(text)[:5] == [m.name for m in healthy.facts.modules]
    assert bars(text) == []


def test_rows_stand_in_forward_order_below_those_of_the_whole_run(failed):
    assert labels(health(failed))[:6] == ["(loss and optimizer)", *(m.name for m in failed.facts.modules)]


def test_a_state_lasts_until_it_recovers_or_the_run_ends():
    dead = observed("dead_units", 3, "a")
    assert spans([dead], 10) == [(3, 10, dead)]
    assert spans([recovered(dead, 7), dead], 10) == [(3, 7, dead)]
    again = observed("dead_units", 8, "a")
    assert spans([dead, recovered(dead, 7), again], 10) == [(3, 7, dead), (8, 10, again)]
    assert spans([dead], 3) == [(3, 4, dead)]


def test_bars_stay_inside_the_picture(failed):
    text = health(failed)
    width = number(ElementTree.fromstring(text), "width")
    assert len(bars(text)) == 8  # nine events, one of them a recovery
    assert all(x >= NAME_WIDTH and x + w <= width for x, w in bars(text))


def test_of_many_layers_those_with_events_are_shown_and_the_rest_is_counted(failed):
    names = [f"layer{i}" for i in range(90)]
    modules = tuple(dataclasses.replace(failed.facts.modules[0], name=n, order=i) for i, n in enumerate(names))
    facts = dataclasses.replace(failed.facts, modules=modules)
    text = health(dataclasses.replace(failed, facts=facts, events=(observed("dead_units", 3, "layer80"),)))
    shown = [t for t in labels(text) if t.startswith("layer")]
    assert len(shown) == ROWS and shown[-1] == "layer80"
    assert "step; 50 more rows are not shown" in labels(text)


def test_a_long_name_keeps_its_end_and_fits(failed):
    name = "encoder." * 20 + "out_proj"
    text = health(dataclasses.replace(failed, events=(observed("dead_units", 3, name),)))
    (label,) = [t for t in ElementTree.fromstring(text).iter(f"{NS}text") if t.findtext(f"{NS}title")]
    drawn = label[0].tail or ""
    assert drawn.startswith("…") and drawn.endswith("out_proj") and text_width(drawn, 11) <= NAME_WIDTH


def test_the_loss_has_its_onset_marked_on_a_failed_run_only(failed, healthy):
    assert "onset, step 20" in labels(loss_curve(failed))
    assert not [t for t in labels(loss_curve(healthy)) if t.startswith("onset")]


@pytest.mark.parametrize(
    "values",
    [(1.0, 1.0), (0.0, 0.0), (-3.0, 4.0), (1e-30, 1e30), (math.inf, 1.0, 2.0), (5e-324, 1.0), (1e308, -1e308)],
)
def test_any_finite_loss_can_be_drawn_inside_its_frame(failed, values):
    text = loss_curve(dataclasses.replace(failed, series={"loss": tuple(enumerate(values))}))
    root = ElementTree.fromstring(text)
    points = [tuple(map(float, p.split(","))) for p in next(root.iter(f"{NS}polyline")).attrib["points"].split()]
    assert len(points) == sum(map(math.isfinite, values))
    assert all(0 <= x <= number(root, "width") and 0 <= y <= number(root, "height") for x, y in points)


def test_a_loss_over_decades_has_a_log_scale_and_a_negative_one_has_not(failed):
    def caption(values):
        return [
            t
            for t in labels(loss_curve(dataclasses.replace(failed, series={"loss": tuple(enumerate(values))})))
            if "over" in t
        ]

    assert caption((1.0, 50.0)) == ["loss over steps"]
    assert caption((1.0, 1000.0)) == ["loss (log scale) over steps"]
    assert caption((-1.0, 1000.0)) == ["loss over steps"]


def test_a_loss_that_was_hardly_seen_is_not_drawn(failed):
    assert loss_curve(dataclasses.replace(failed, series={})) == ""
    assert loss_curve(dataclasses.replace(failed, series={"loss": ((0, 1.0), (1, math.nan))})) == ""


def test_thinning_keeps_every_spike_and_the_order():
    points = [(i, 1.0) for i in range(10_000)]
    points[5_003] = (5_003, 99.0)
    thin = thinned(points, POINTS)
    assert (5_003, 99.0) in thin and len(thin) <= POINTS and thin == sorted(thin)
    assert thinned(points[:POINTS], POINTS) == points[:POINTS]


def test_ticks_are_round_and_lie_between_the_bounds():
    assert ticks(0, 10, 4) == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert ticks(1, 1) == [1]
    assert all(0.31 <= t <= 9.1 for t in ticks(0.31, 9.1, 4))
