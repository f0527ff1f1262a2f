import html
import re

from markdown_it import MarkdownIt

from neuraldbg.report.markdown import EVIDENCE_ROWS, escape, markdown
from neuraldbg.report.sentences import clean

# what GitHub and trackers read: tables, strikethrough, raw HTML and bare links are on
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
TAGS = {
    "h2",
    "p",
    "strong",
    "ul",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "pre",
    "code",
    "details",
    "summary",
}


def rendered(text):
    return READER.render(text)


def test_a_healthy_run_has_a_verdict_and_coverage_and_no_empty_sections(healthy):
    text = markdown(healthy)
    assert text.startswith("## NeuralDBG: healthy\n\n**No sign of failure in 40 steps;")
    assert "mermaid" not in text and "| cause |" not in text and "<details>" not in text
    assert "- **Looked at:** 9 of 10 parameters" in text


def test_a_failed_run_has_verdict_table_graph_and_events(failed):
    page = rendered(markdown(failed))
    assert f"<strong>{failed.top.description}</strong>" in html.unescape(page)
    assert "<td>learning_rate_too_high</td>" in page and "<td>dead_relu_negative_bias</td>" in page
    assert page.count("<tr>") == 3
    assert '<code class="language-mermaid">graph TD' in page
    assert "Events (9)" in page and page.count("<li>") == 5 + 9


def test_a_note_of_a_warning_is_in_the_table(warning):
    assert "| 0.40 | unnormalised\\_inputs |  | 0 | data\\_anomaly |" in markdown(warning)


def test_hostile_names_stay_text_in_prose_lists_and_tables(hostile):
    page = rendered(markdown(hostile))
    assert set(re.findall(r"</?([a-zA-Z][a-zA-Z0-9]*)", page)) <= TAGS
    cells = [re.findall("<t[dh]", row) for row in re.findall("<tr>.*?</tr>", page, re.DOTALL)]
    assert [len(row) for row in cells] == [5, 5, 5]
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    for name in ("<script>alert(1)</script>", '"]; x[', "a|b|c", "```tick`s", "line break # head", "&amp; <b>bold</b>"):
        assert name in text


def test_every_special_character_is_shown_as_itself():
    nasty = "# > - * _a_ __b__ `c` ~~d~~ [e](f) ![g](h) <i>j</i> a|b $x$ @user #1 https://x.y www.x.y \\ &lt; 1. +"
    page = rendered(f"- {escape(nasty)}")
    assert re.findall(r"<(\w+)", page) == ["ul", "li"]
    assert html.unescape(re.sub(r"</?(ul|li)>", "", page)).strip() == clean(nasty)
    assert "https://" not in escape(nasty) and "@user" not in escape(nasty)


def test_many_events_are_cut_and_counted(hostile):
    assert len(hostile.events) == 19 < EVIDENCE_ROWS
    assert " more" not in markdown(hostile).split("<details>")[1]
    import dataclasses

    longer = dataclasses.replace(hostile, events=hostile.events * 2)
    assert f"- and {38 - EVIDENCE_ROWS} more" in markdown(longer)
