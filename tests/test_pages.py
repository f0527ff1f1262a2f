"""The pages at the root link to what is there, and the roadmap says of each promise what became of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("*.md"))  # those of docs/ are held by the strict build of the site
PROJECTS = (ROOT / "PROJECTS.md").read_text()
STATES = ("built", "planned", "declined")
Row = tuple[str, str, str]


def links(text: str) -> list[str]:
    """Targets of a page's links that point into the checkout; code blocks are no links."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    return [target for target in found if "://" not in target and not target.startswith("mailto:")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_exists(page: Path) -> None:
    assert [target for target in links(page.read_text()) if not (page.parent / target).exists()] == []


def test_a_link_in_a_code_block_or_to_elsewhere_is_none() -> None:
    text = "[a](b.md#part) [c](https://example.org)\n\n```python\nx = [f](y)\n```\n[d](e/)"
    assert links(text) == ["b.md", "e/"]


def promises() -> list[Row]:
    """(promise, state, where or why) of each row of the roadmap."""
    rows = re.findall(r"^\| (.+?) \| (\w+) \| (.+?) \|$", PROJECTS, re.MULTILINE)
    return [row for row in rows if row[0] != "promise"]


def missing(rows: list[Row]) -> list[str]:
    """Files and folders that a row names and the checkout lacks."""
    named = {path for row in rows for path in re.findall(r"`([\w./-]+(?:/|\.\w+))`", row[2])}
    return sorted(path for path in named if "/" in path and not (ROOT / path).exists())


def test_every_promise_has_a_state_and_says_where_or_why() -> None:
    rows = promises()
    assert len(rows) >= 40
    assert [row for row in rows if row[1] not in STATES or len(row[2]) < 10] == []
    assert {row[1] for row in rows} == set(STATES)


def test_every_place_that_the_roadmap_names_is_there() -> None:
    assert missing(promises()) == []


def test_a_place_that_is_not_there_would_be_noticed() -> None:
    assert missing([("x", "built", "`neuraldbg/no_such.py`, `neuraldbg/run.py`, `max_events`")]) == [
        "neuraldbg/no_such.py"
    ]
