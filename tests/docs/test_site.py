"""The site builds without a warning, loads nothing from elsewhere, and has a page for every cause and failure type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_api import api_page, settings_page
from docs_causes import cause_index, cause_page, escape, examples, failure_page, failure_types, headed, rules, trainings

import neuraldbg
from neuraldbg.diagnosis import FAILURE_TYPES
from neuraldbg.report.sentences import CAUSES
from neuraldbg.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; mkdocs runs strictly, so that a link that leads nowhere fails here."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_cause_and_failure_type_has_its_page(site: Path) -> None:
    assert {page.parent.name for page in (site / "causes").glob("*/index.html")} == set(rules())
    assert {page.parent.name for page in (site / "failures").glob("*/index.html")} == set(FAILURE_TYPES)


def test_a_page_of_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    pages = [file.read_text() for file in site.rglob("*.html")]
    assert len(pages) > 50
    assert [found for page in pages for found in loads.findall(page) if 'rel="canonical"' not in found] == []


def test_the_build_leaves_nothing_in_the_checkout(site: Path) -> None:
    assert not (ROOT / "docs" / "causes").exists() and not (ROOT / "docs" / "settings.md").exists()


# the pages that are made from the code

RULE = '''"""A *title* [1]

What it is
    Values `a_b` that __grow__ by a < b.

Reference
    pytorch/pytorch issue 84803 (transfers).
"""

claim = dict(failure_type="data_anomaly", other="dead_neurons", text="a dead_neurons in words")
'''


def test_prose_is_shown_as_it_is_and_code_is_left_alone() -> None:
    assert escape("`a_b` and __init__ <b> [x](y)") == r"`a_b` and \_\_init\_\_ \<b\> \[x\](y)"


def test_a_page_has_the_parts_of_its_docstring_in_order() -> None:
    assert [heading for heading, _ in headed("T\n\nWhat it is\n    one\n    two\n\nReference\n    r\n")] == [
        "T",
        "What it is",
        "Reference",
    ]
    page = cause_page("my_cause", RULE, calibrated=False)
    assert page.startswith("# A \\*title\\* \\[1\\]\n")
    assert "## What it is\n\nValues `a_b` that \\_\\_grow\\_\\_ by a \\< b.\n" in page
    assert "[pytorch/pytorch issue 84803](https://github.com/pytorch/pytorch/issues/84803)" in page


def test_only_a_cause_without_a_fit_says_so() -> None:
    assert "not fitted" in cause_page("my_cause", RULE, calibrated=False)
    assert "not fitted" not in cause_page("my_cause", RULE, calibrated=True)


def test_failure_types_are_those_that_the_rule_names_and_not_words_of_its_prose() -> None:
    assert failure_types(RULE) == ["dead_neurons", "data_anomaly"]
    assert failure_types('"""About vanishing_gradients."""') == []


def test_a_page_shows_the_trainings_that_get_its_cause() -> None:
    (script,) = examples()["attention_mask_all_inf"]
    page = cause_page("attention_mask_all_inf", rules()["attention_mask_all_inf"], True, [script])
    assert script.read_text().rstrip() in page
    assert f"python {script.relative_to(ROOT).as_posix()}" in page


def test_a_page_shows_a_verdict_as_it_was_printed_and_says_where_it_was_wrong() -> None:
    kept = {"training": "mlp/x.0:0", "answer": "my_cause", "text": "FAILED: it is\nNext: do"}
    right = cause_page("my_cause", RULE, True, kept=kept)
    assert "`python -m benchmarks.causes my_cause`" in right and "```text\nFAILED: it is\nNext: do\n```" in right
    assert "does not name it" not in right
    assert "does not name it" in cause_page("my_cause", RULE, True, kept={**kept, "answer": "unknown"})


def test_causes_without_a_rule_are_told_apart() -> None:
    own = {"nan_in_input": RULE}
    waiting = cause_index(own).partition("No rule claims these yet")[2]
    assert "`nan_in_input`" not in waiting and all(f"`{cause}`" in waiting for cause in CAUSES if cause not in own)


def test_every_failure_type_lists_symptoms_and_causes() -> None:
    sources = rules()
    for failure in FAILURE_TYPES:
        seen, _, causes = failure_page(failure, sources, {}).partition("## Causes")
        assert seen.count("\n| `") >= 1 and causes.count("\n- [") >= 1, failure


def test_a_failure_type_shows_a_training_that_failed_so_and_was_named_right() -> None:
    told = {"training": "t", "answer": "nan_in_input", "failure": "data_anomaly", "text": "FAILED: NaN"}
    heading = "## A training that fails so"
    shown = failure_page("data_anomaly", rules(), {"nan_in_input": told})
    assert heading in shown and "`python -m benchmarks.causes nan_in_input`" in shown and "FAILED: NaN" in shown
    wrong, other = told | {"answer": "label_error"}, told | {"failure": "exploding_gradients"}
    for kept in ({}, {"nan_in_input": wrong}, {"nan_in_input": other}):
        assert heading not in failure_page("data_anomaly", rules(), kept)


def test_every_failure_type_has_a_training() -> None:
    for failure in FAILURE_TYPES:
        assert "## A training that fails so" in failure_page(failure, rules(), trainings()), failure


def test_every_setting_is_listed_with_its_default_and_explained() -> None:
    table, _, words = settings_page().partition("## What they mean")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \| `NEURALDBG_\w+` \|$", table, re.MULTILINE))
    assert set(rows) == set(Settings.model_fields)
    assert (rows["dense_steps"], rows["cadence"]) == ("500", "none")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"^- \*\*(.*?)\*\*", words.replace("\\", ""), re.MULTILINE))))
    assert set(Settings.model_fields) - named <= {"sparse_every", "replay_seconds", "journal_mb"}


def test_the_api_has_every_public_name_and_every_public_method() -> None:
    page = api_page()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == sorted(
        neuraldbg.__all__, key=lambda name: (name != "NeuralDbg", name)
    )
    methods = {"diagnose", "explain_failure", "record_loss", "save", "collapse_events", "trace_causal_chain"}
    assert methods <= set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    assert "self" not in "".join(re.findall(r"^```python\n(.*?)```", page, re.MULTILINE | re.DOTALL))
