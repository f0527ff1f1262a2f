"""What a user sees in MLflow's pages, in a real browser. NEURALDBG_PICTURES=1 renews the pictures of the docs."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from neuraldbg.integrations.mlflow import autolog, install_view
from tests.services import trainings
from tests.services.servers import ROOT, Server

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TRAINING = "workflowType=machine_learning"  # MLflow's pages for trainings, not those for language models
ASSISTANT = "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1"  # MLflow's own panel, open at the first visit, over ours
DRAWN = "img => img.complete && img.naturalWidth > 50 && img.naturalHeight > 20"


@pytest.fixture(name="page")
def _page(browser: Any) -> Any:
    page = browser.new_page(viewport={"width": 1600, "height": 860})
    page.set_default_timeout(60_000)
    page.add_init_script(f"localStorage.setItem('{ASSISTANT}', 'true')")
    yield page
    page.close()


def picture(page: Any, name: str, folder: Path, height: int = 860) -> None:
    target = ROOT / "docs" / "images" if os.environ.get("NEURALDBG_PICTURES") == "1" else folder
    page.screenshot(path=str(target / f"{name}.png"), clip={"x": 0, "y": 0, "width": 1600, "height": height})


def drawn(page: Any, selector: str, count: int = 1) -> None:
    """So many pictures are on the page and have been drawn."""
    page.wait_for_function(
        f"([s, n]) => [...document.querySelectorAll(s)].filter({DRAWN}).length >= n", arg=[selector, count]
    )


def test_the_overview_of_a_run_shows_the_verdict_and_the_graph(
    server: Server, experiment: str, page: Any, tmp_path: Path
) -> None:
    autolog()
    run = trainings.run("rate")
    page.goto(f"{server.url}/#/experiments/{experiment}/runs/{run}?{TRAINING}")
    page.get_by_text("neuraldbg.verdict").first.wait_for()
    page.get_by_text("learning_rate_too_high").first.wait_for()
    drawn(page, "img[src*='neuraldbg_graph.svg']")
    box = page.locator("img[src*='neuraldbg_graph.svg']").bounding_box()
    assert box is not None and box["height"] > 50
    more = page.get_by_text("Show more", exact=True)
    if more.count():
        more.first.click()
    picture(page, "mlflow-overview", tmp_path)


def test_the_artifact_page_draws_the_report_and_the_graph(
    server: Server, experiment: str, page: Any, tmp_path: Path
) -> None:
    autolog()
    run = trainings.run("rate")
    page.goto(f"{server.url}/#/experiments/{experiment}/runs/{run}/artifacts/neuraldbg.html?{TRAINING}")
    report = page.frame_locator("iframe")
    report.get_by_text("learning_rate_too_high").first.wait_for()
    box = report.locator("svg").first.bounding_box()
    assert box is not None and box["width"] > 100 and box["height"] > 50
    picture(page, "mlflow-report", tmp_path)
    page.get_by_text("neuraldbg_graph.svg").first.click()
    drawn(page, "img")


def test_the_compare_page_shows_both_graphs(server: Server, experiment: str, page: Any, tmp_path: Path) -> None:
    autolog()
    runs = [trainings.run("nan"), trainings.run("rate")]
    query = f"runs={quote(json.dumps(runs))}&experiments={quote(json.dumps([experiment]))}"
    page.goto(f"{server.url}/#/compare-runs?{query}")
    for cause in ("nan_in_input", "learning_rate_too_high"):
        page.get_by_text(cause).first.wait_for()
    # All of the page's parts are open; a header that scrolls along lies over the list's place.
    page.get_by_text("neuraldbg_graph.svg").dispatch_event("click")
    drawn(page, "img", 2)
    heading = page.get_by_text("Artifacts", exact=True).last
    heading.evaluate("node => node.scrollIntoView()")
    picture(page, "mlflow-compare", tmp_path, height=260)


def test_the_saved_view_groups_the_runs_of_a_sweep_by_cause(
    server: Server, experiment: str, page: Any, tmp_path: Path
) -> None:
    autolog()
    for kind in ("nan", "nan", "rate", "healthy"):
        trainings.run(kind)
    page.goto(server.url + install_view(experiment))
    page.get_by_text("Group: nan_in_input").wait_for()
    lines = page.inner_text("body").splitlines()
    counts = {a.removeprefix("Group: "): int(b) for a, b in itertools.pairwise(lines) if a.startswith("Group: ")}
    assert counts == {"none": 1, "nan_in_input": 2, "learning_rate_too_high": 1}
    picture(page, "mlflow-causes", tmp_path, height=560)
