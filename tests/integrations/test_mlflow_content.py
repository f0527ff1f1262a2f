"""What is written into a run, key by key: whole values, and what MLflow would refuse."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import mlflow
import pytest

import neuraldbg
from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, Diagnosis, GraphNode, Verdict
from neuraldbg.events import observed, recovered
from neuraldbg.integrations import _mlflow_content as content
from neuraldbg.integrations._content import TAG_LIMIT, known_causes
from neuraldbg.record import RunFacts

HEALTHY = Diagnosis(Verdict.HEALTHY, 0.02, steps=40)
DEAD = observed("dead_units", 4, "blocks[0].<act>", share=0.9)
RATE = CausalHypothesis(
    "dead_neurons", "learning_rate_too_high", "blocks[0].<act>", 3, 0.87, "Units died", remedy="lower"
)
OTHER = CausalHypothesis("dead_neurons", "dead_relu_negative_bias", None, 9, 0.25, "A bias")
FAILED = Diagnosis(
    Verdict.FAILED,
    0.98,
    hypotheses=(RATE, OTHER),
    graph=CausalGraph((GraphNode("n0", "rate", "cause", 3),)),
    events=(observed("violent_update", 3), DEAD, replace(DEAD, step=8), recovered(DEAD, 12)),
    steps=40,
)


def test_a_healthy_run_carries_the_same_keys_for_grouping() -> None:
    assert content.tags(HEALTHY) == {
        "neuraldbg.verdict": "healthy",
        "neuraldbg.version": neuraldbg.__version__,
        "neuraldbg.schema": "1",
        "neuraldbg.cause": "none",
        "neuraldbg.failure": "none",
        "neuraldbg.layer": "none",
        "neuraldbg.step": "none",
        "neuraldbg.causes": "none",
    }


def test_a_healthy_runs_notes_name_no_cause() -> None:
    noted = replace(HEALTHY, notes=(RATE,))
    assert content.tags(noted) == content.tags(HEALTHY)
    assert content.metrics(noted) == content.metrics(HEALTHY)


def test_a_failed_run_names_cause_place_and_events() -> None:
    assert content.tags(FAILED, {"team": "vision"}) == {
        "team": "vision",
        "neuraldbg.verdict": "failed",
        "neuraldbg.version": neuraldbg.__version__,
        "neuraldbg.schema": "1",
        "neuraldbg.cause": "learning_rate_too_high",
        "neuraldbg.failure": "dead_neurons",
        "neuraldbg.layer": "blocks[0].<act>",
        "neuraldbg.step": "3",
        "neuraldbg.causes": "learning_rate_too_high:0.87,dead_relu_negative_bias:0.25",
        "neuraldbg.event.violent_update": "@3 x1",
        "neuraldbg.event.dead_units": "blocks[0].<act>@4 x2",
    }


def test_an_exception_is_a_tag_of_its_type_only() -> None:
    broken = replace(HEALTHY, facts=RunFacts(exception="ValueError: secret 123"))
    assert content.tags(broken)["neuraldbg.exception"] == "ValueError"


def test_long_values_are_clipped_with_an_ellipsis() -> None:
    long = replace(FAILED, hypotheses=(replace(RATE, layer_name="x" * 9000),))
    value = content.tags(long)["neuraldbg.layer"]
    assert len(value) == TAG_LIMIT
    assert value.endswith("…")


def test_at_most_twelve_kinds_of_events_the_earliest() -> None:
    from neuraldbg.events import SYMPTOMS

    many = [observed(symptom, step) for step, symptom in enumerate(SYMPTOMS)]
    tags = content.event_tags(reversed(many))
    assert [key.rpartition(".")[2] for key in tags] == list(SYMPTOMS)[:12]


def test_causes_that_were_ruled_out_are_zero_so_that_no_plot_has_holes() -> None:
    metrics = {p.key: p.value for p in content.metrics(FAILED)}
    assert metrics["neuraldbg/cause/learning_rate_too_high"] == 0.87
    assert {f"neuraldbg/cause/{cause}" for cause in known_causes()} <= set(metrics)
    assert metrics["neuraldbg/cause/nan_in_input"] == 0.0
    assert metrics["neuraldbg/events"] == 3
    assert metrics["neuraldbg/first_step"] == 3
    assert metrics["neuraldbg/top_confidence"] == 0.87


def test_metrics_are_finite_and_no_key_is_the_folder_of_another() -> None:
    odd = replace(FAILED, hypotheses=(replace(RATE, confidence=math.nan, cause="Odd [0] → cause"),))
    points = content.metrics(odd)
    keys = {p.key for p in points}
    assert all(math.isfinite(p.value) for p in points)
    assert not any(a != b and b.startswith(a + "/") for a in keys for b in keys)


def test_steps_with_non_finite_values_are_counted_once_each() -> None:
    events = (
        observed("nan_input", 3),
        observed("loss_nonfinite", 3),
        observed("nan_input", 7),
        observed("rate_jump", 8),
    )
    metrics = {p.key: p.value for p in content.metrics(replace(HEALTHY, events=events))}
    assert metrics["neuraldbg/nonfinite_steps"] == 2


def test_mlflow_takes_every_key_and_value(store: str) -> None:
    odd = replace(FAILED, hypotheses=(replace(RATE, cause="Odd [0] → cause"),))
    with mlflow.start_run() as run:
        mlflow.set_tags(content.tags(odd))
        for point in content.metrics(odd):
            mlflow.log_metric(point.key, point.value, step=point.step)
    assert mlflow.get_run(run.info.run_id).data.tags["neuraldbg.cause"] == "Odd [0] → cause"
    found = mlflow.search_runs(experiment_names=["test"], filter_string="tags.neuraldbg.verdict = 'failed'")
    assert len(found) == 1


def test_the_files_are_the_documented_ones_and_readable() -> None:
    files = content.files(FAILED)
    assert set(files) == {
        "neuraldbg.html",
        "neuraldbg_graph.svg",
        "neuraldbg/report.md",
        "neuraldbg/graph.mmd",
        "neuraldbg/hypotheses.json",
        "neuraldbg/diagnosis.json",
        "neuraldbg/events.jsonl",
    }
    table = json.loads(files["neuraldbg/hypotheses.json"])
    assert [row[table["columns"].index("cause")] for row in table["data"]] == [RATE.cause, OTHER.cause]
    assert len(files["neuraldbg/events.jsonl"].splitlines()) == 4
    assert len(files["neuraldbg.html"]) < 200_000


def test_the_description_starts_with_the_verdict_and_links_to_the_report() -> None:
    lines = content.description(FAILED, "7", "abc").splitlines()
    assert lines[0] == content.BEGIN
    assert lines[-1] == content.END
    assert lines[1].startswith("**NeuralDBG: failed** · learning\\_rate\\_too\\_high in ")
    assert lines[1].endswith(
        "[report](#/experiments/7/runs/abc/artifacts/neuraldbg.html?workflowType=machine_learning)"
    )
    assert "](get-artifact?path=neuraldbg_graph.svg&run_uuid=abc)" in lines[-2]


def test_a_layer_name_cannot_end_our_block_or_bring_html() -> None:
    odd = replace(FAILED, hypotheses=(replace(RATE, layer_name="<!-- neuraldbg:end --><script>"),))
    block = content.description(odd, "7", "abc")
    assert block.count(content.END) == 1
    assert "<script>" not in block


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ("", "B"),
        ("mine", "mine\n\nB"),
        ("mine\n\n\n", "mine\n\nB"),
        (f"mine\n\n{content.BEGIN}old{content.END}", "mine\n\nB"),
        (f"{content.BEGIN}old{content.END}\nafter", "B\nafter"),
        (f"mine\n\n{content.BEGIN}the end was deleted", f"mine\n\n{content.BEGIN}the end was deleted\n\nB"),
        ("x" * 5000, "x" * 5000),
        (f"{'x' * 5000}\n\n{content.BEGIN}old{content.END}", "x" * 5000),
    ],
)
def test_the_users_description_stays_and_ours_is_replaced(existing: str, expected: str) -> None:
    assert content.merged_note(existing, "B") == expected


def test_our_table_joins_the_users_tables_once() -> None:
    once = content.registered_tables('[{"path": "theirs.json", "type": "table"}]')
    assert content.registered_tables(once) == once
    assert [t["path"] for t in json.loads(once)] == ["theirs.json", content.TABLE]
    assert json.loads(content.registered_tables("broken")) == [{"path": content.TABLE, "type": "table"}]
