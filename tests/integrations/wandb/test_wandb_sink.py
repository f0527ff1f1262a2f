"""The sink writes into the user's run and nowhere else; the user's own rows are exactly what they are without it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb

from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.integrations.wandb import WandbSink
from neuraldbg.report.json import from_json
from neuraldbg.sinks import FanOut, Undelivered

from .sessions import (
    DEAD,
    EVENTS,
    FACTS,
    FAILED,
    FILES,
    HEALTHY,
    NAN,
    OTHER,
    TOP,
    automatic,
    automatic_in_parts,
    explicit,
    explicit_and_committed,
    explicit_in_parts,
    left,
    session,
    settle,
)

# -- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["abc", 3, object()])
def test_what_is_no_run_is_refused_with_its_value(run: Any) -> None:
    with pytest.raises(TypeError, match="is no W&B run; give what wandb"):
        WandbSink(run)


@pytest.mark.parametrize("seconds", [0, -1.0, True, "3", float("nan")])
def test_a_deadline_that_is_no_positive_number_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"close_timeout=.* is no positive number of seconds"):
        WandbSink(close_timeout=seconds)


# -- into which run ---------------------------------------------------------------------------------------------------


def test_a_session_without_a_step_leaves_nothing_in_the_run(begin: Any, told: Any, tmp_path: Path) -> None:
    run = begin()
    fanout = FanOut([WandbSink()])
    fanout.open(FACTS)
    fanout.close(Diagnosis(Verdict.HEALTHY, 0.0))
    log = told(run)
    assert (log.rows, log.axes, log.tags, log.artifacts) == ([], {}, (), [])
    assert not any("neuraldbg" in key for key in (*log.summary, *log.config, *log.files))


def test_without_a_run_none_is_made_and_the_report_is_kept_where_the_warning_says(tmp_path: Path) -> None:
    with pytest.raises(Undelivered, match=r"no W&B run was active while it trained; call wandb.init\(\)"):
        session(WandbSink(spool_dir=tmp_path / "spool"))
    assert wandb.run is None
    assert set(left(tmp_path / "spool")) == {*FILES, "neuraldbg.wandb.jsonl"}
    (saved,) = (tmp_path / "spool").rglob("diagnosis.json")
    assert from_json(saved.read_text()) == FAILED


def test_a_rank_that_has_no_run_says_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    session(WandbSink())
    assert left(tmp_path) == []


def test_a_disabled_run_is_left_alone(tmp_path: Path) -> None:
    run = wandb.init(mode="disabled")
    before = left(Path(run.dir)) if Path(run.dir).exists() else []
    session(WandbSink())
    assert (left(Path(run.dir)) if Path(run.dir).exists() else []) == before
    assert left(tmp_path) == []
    run.finish()


def test_a_run_that_begins_after_the_session_is_found(begin: Any, told: Any, tmp_path: Path) -> None:
    fanout = FanOut([WandbSink()])
    fanout.open(FACTS)
    fanout.event(DEAD)
    settle(fanout)
    run = begin()
    fanout.event(NAN)
    fanout.close(FAILED)
    assert told(run).summary["neuraldbg_verdict"] == "failed"
    assert not (tmp_path / ".neuraldbg").exists()


def test_a_run_that_is_given_is_used_though_another_is_active(begin: Any, told: Any) -> None:
    first = begin()
    second = begin(reinit="create_new")
    session(WandbSink(second))
    assert told(second).summary["neuraldbg_verdict"] == "failed"
    assert not any("neuraldbg" in key for key in told(first).summary)


# -- the user's own run stays as it is --------------------------------------------------------------------------------


STYLES = [automatic, automatic_in_parts, explicit, explicit_in_parts, explicit_and_committed]
MANY = tuple(observed("loss_spike", step) for step in range(40))


@pytest.mark.parametrize("style", STYLES)
def test_the_users_rows_and_steps_are_the_same_with_and_without_us(
    begin: Any, told: Any, style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point of ours after each of the user's, and one before the first; values and steps are compared whole."""
    from neuraldbg.integrations import _wandb_sink

    monkeypatch.setattr(_wandb_sink, "BETWEEN_POINTS", 0.0)
    bare = begin()
    for number in range(len(MANY)):
        style(bare, number)
    expected = told(bare)
    watched = begin()
    session(WandbSink(watched), replace(FAILED, events=MANY), lambda number: style(watched, number))
    got = told(watched)
    assert len(expected.users_rows()) == len(MANY)
    assert got.users_rows() == expected.users_rows()
    assert got.series("neuraldbg/events")[-1] == len(MANY)
    assert got.series("neuraldbg/step")[-2:] == [39, 8]  # the last event, then the graph at the last step
    assert len(got.series("neuraldbg/events")) > 30


@pytest.mark.parametrize("style", [automatic, explicit_in_parts])
def test_events_that_come_while_the_user_logs_at_full_speed_change_no_row(
    begin: Any, told: Any, style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuraldbg.integrations import _wandb_sink

    monkeypatch.setattr(_wandb_sink, "BETWEEN_POINTS", 0.0)
    bare = begin()
    for number in range(200):
        style(bare, number)
    expected = told(bare)
    watched = begin()
    fanout = FanOut([WandbSink()])
    fanout.open(FACTS)
    for number in range(200):
        fanout.event(observed("loss_spike", number))
        style(watched, number)
    fanout.close(replace(FAILED, steps=200))
    got = told(watched)
    assert got.users_rows() == expected.users_rows()
    assert got.summary["neuraldbg/events"] == 200


def test_a_forked_process_never_writes_into_its_parents_run(begin: Any, told: Any, tmp_path: Path) -> None:
    run = begin()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session(WandbSink(spool_dir=tmp_path / "child"))
        except Undelivered:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list((tmp_path / "child").rglob("diagnosis.json"))) == 1
    log = told(run)
    assert not any("neuraldbg" in key for key in (*log.summary, *log.config, *log.files, *log.tags))


@pytest.mark.parametrize("style", [automatic, explicit_in_parts])
def test_a_plain_log_in_our_place_would_be_noticed(begin: Any, told: Any, style: Any) -> None:
    bare = begin()
    for number in range(6):
        style(bare, number)
    expected = told(bare)
    careless = begin()
    for number in range(6):
        careless.log({"neuraldbg/step": number})
        style(careless, number)
    assert told(careless).users_rows() != expected.users_rows()


def test_without_history_not_one_row_is_ours(begin: Any, told: Any) -> None:
    run = begin()
    session(WandbSink(log_history=False), between=lambda number: automatic(run, number))
    log = told(run)
    assert [set(row) - {"_runtime", "_timestamp"} for row in log.rows] == [{"_step", "loss", "epoch"}] * 3
    assert log.summary["neuraldbg/graph"]["_type"] == "html-file"


def test_tags_notes_config_and_the_end_of_the_run_are_the_users(begin: Any, told: Any) -> None:
    run = begin(tags=["mine", "neuraldbg-like"], notes="*My* notes", config={"lr": 0.1, "net": {"depth": 3}})
    session(WandbSink())
    assert wandb.run is run
    log = told(run)
    assert log.tags == ("mine", "neuraldbg-like", "neuraldbg:failed", "neuraldbg:learning_rate_too_high")
    assert log.notes == "*My* notes"
    assert {k: v for k, v in log.config.items() if k not in ("_wandb", "neuraldbg")} == {
        "lr": 0.1,
        "net": {"depth": 3},
    }
    assert log.exit_code == 0


def test_the_config_has_nothing_of_ours_while_the_training_runs(begin: Any) -> None:
    """Users pass it on whole, as in `Model(**run.config)`."""
    run = begin(config={"lr": 0.1})
    seen: list[dict[str, Any]] = []
    session(WandbSink(), between=lambda number: seen.append(dict(run.config)))
    assert seen == [{"lr": 0.1}] * len(EVENTS)
    assert set(run.config.keys()) == {"lr", "neuraldbg"}


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_users(begin: Any, told: Any, code: int) -> None:
    run = begin()
    session(WandbSink())
    run.finish(exit_code=code)
    assert told(run).exit_code == code


# -- what it tells ----------------------------------------------------------------------------------------------------


def test_a_failed_run_has_columns_a_group_a_table_a_graph_and_files(begin: Any, told: Any) -> None:
    run = begin()
    session(WandbSink())
    log = told(run)
    assert {k: v for k, v in log.summary.items() if k.startswith("neuraldbg_")} == {
        "neuraldbg_verdict": "failed",
        "neuraldbg_failed": 1,
        "neuraldbg_cause": "learning_rate_too_high",
        "neuraldbg_cause_2": "dead_relu_negative_bias",
        "neuraldbg_failure": "dead_neurons",
        "neuraldbg_layer": "blocks.0.act",
        "neuraldbg_confidence": 0.87,
        "neuraldbg_failure_probability": 0.98,
        "neuraldbg_first_step": 3,
        "neuraldbg_events": 2,
        "neuraldbg_sessions": 1,
        "neuraldbg_first_event": "dead_units in blocks.0.act",
        "neuraldbg_first_event_step": 3,
    }
    assert log.config["neuraldbg"]["cause"] == "learning_rate_too_high"
    assert log.axes["neuraldbg/*"] == "neuraldbg/step"
    assert log.summary["neuraldbg/hypotheses"]["nrows"] == 2
    assert {f"neuraldbg/{name}" for name in FILES} <= log.files
    assert (f"neuraldbg-{run.id}", "neuraldbg-diagnosis") in log.artifacts
    assert log.alerts == []
    drawn = Path(run.dir, log.series("neuraldbg/graph")[-1]["path"]).read_text()
    assert "<svg" in drawn and "<script" not in drawn and "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert from_json(Path(run.dir, "neuraldbg", "diagnosis.json").read_text()) == FAILED


def test_a_healthy_run_has_the_same_columns_so_that_all_can_be_grouped(begin: Any, told: Any) -> None:
    run = begin()
    session(WandbSink(), HEALTHY)
    log = told(run)
    assert log.summary["neuraldbg_cause"] == "none"
    assert log.summary["neuraldbg_failed"] == 0
    assert log.config["neuraldbg"] == {**log.config["neuraldbg"], "verdict": "healthy", "cause": "none"}
    assert log.tags == ("neuraldbg:healthy",)
    assert "neuraldbg_first_step" not in log.summary
    assert log.rows == []
    assert {name for name in log.files if "neuraldbg" in name} == {f"neuraldbg/{name}" for name in FILES}


def test_the_table_is_typed_though_layers_and_ranks_are_missing(begin: Any, told: Any) -> None:
    import json

    run = begin()
    noted = replace(FAILED, notes=(replace(OTHER, cause="unknown"),))
    session(WandbSink(), noted)
    stored = told(run).summary["neuraldbg/hypotheses"]
    table = json.loads(Path(run.dir, stored["path"]).read_text())
    assert [row[:6] for row in table["data"]] == [
        [1, "learning_rate_too_high", "dead_neurons", "blocks.0.act", 3, 0.87],
        [2, "dead_relu_negative_bias", "dead_neurons", None, 9, 0.25],
        [None, "unknown", "dead_neurons", None, 9, 0.25],
    ]


def test_alerts_are_off_unless_asked_for_and_name_step_and_layer(begin: Any, told: Any) -> None:
    run = begin()
    session(WandbSink(alert=True))
    (first, final) = told(run).alerts
    assert first == (
        "NeuralDBG: non-finite values in the output",
        "non-finite values in the output in layer blocks.1, at step 7",
        "ERROR",
    )
    assert final[0] == "NeuralDBG: failed, learning_rate_too_high"
    assert "Units died" in final[1]


def test_what_is_turned_off_is_not_written(begin: Any, told: Any) -> None:
    run = begin(tags=["mine"])
    off = dict.fromkeys(
        ("log_history", "log_summary", "log_config", "log_tags", "log_graph", "log_files", "log_artifacts"), False
    )
    session(WandbSink(**off))
    log = told(run)
    assert (log.rows, log.tags, log.artifacts) == ([], ("mine",), [])
    assert not any("neuraldbg" in key for key in (*log.summary, *log.config, *log.files))
    assert from_json(Path(run.dir, "neuraldbg", "diagnosis.json").read_text()) == FAILED


@pytest.mark.parametrize("order", [(FAILED, HEALTHY), (HEALTHY, FAILED)])
def test_of_several_sessions_in_a_run_the_failed_one_is_shown_and_every_report_stays(
    begin: Any, told: Any, order: tuple[Diagnosis, Diagnosis]
) -> None:
    run = begin()
    for diagnosis in order:
        session(WandbSink(), diagnosis)
    log = told(run)
    assert (log.summary["neuraldbg_verdict"], log.summary["neuraldbg_sessions"]) == ("failed", 2)
    assert log.config["neuraldbg"]["cause"] == "learning_rate_too_high"
    assert log.tags == ("neuraldbg:failed", "neuraldbg:learning_rate_too_high")
    kept = [Path(run.dir, "neuraldbg", place, "diagnosis.json") for place in ("", "session-2")]
    assert tuple(from_json(file.read_text()) for file in kept) == order
    assert "neuraldbg/session-2/report.html" in log.files


def test_a_cause_too_long_for_a_tag_is_clipped_and_the_users_tags_stay(begin: Any, told: Any) -> None:
    run = begin(tags=["mine"])
    session(WandbSink(), replace(FAILED, hypotheses=(replace(TOP, cause="x" * 300),)))
    log = told(run)
    assert log.tags[:2] == ("mine", "neuraldbg:failed")
    assert len(log.tags[2]) == 64 and log.tags[2].endswith("…")


def test_a_layer_name_brings_no_markup_into_the_page(begin: Any, told: Any) -> None:
    run = begin()
    odd = replace(TOP, layer_name="<script>alert(1)</script>", description="In <script>alert(1)</script>")
    session(WandbSink(), replace(FAILED, hypotheses=(odd,)))
    path = told(run).series("neuraldbg/graph")[-1]["path"]
    assert "<script" not in Path(run.dir, path).read_text()


# -- on disk first ----------------------------------------------------------------------------------------------------


def test_the_journal_lies_beside_the_run_until_it_is_told(begin: Any, told: Any) -> None:
    run = begin()
    folder = Path(run.dir).parent / "neuraldbg"
    seen: list[list[str]] = []
    session(WandbSink(), between=lambda number: seen.append(left(folder)))
    assert seen == [["1-neuraldbg.wandb.jsonl"]] * len(EVENTS)
    assert not folder.exists()


def test_a_run_that_was_finished_too_early_costs_one_error_that_says_where_it_all_is(begin: Any, told: Any) -> None:
    run = begin()
    fanout = FanOut([WandbSink()])
    fanout.open(FACTS)
    fanout.event(DEAD)
    settle(fanout)
    run.finish()
    with pytest.raises(Undelivered, match=rf"W&B run {run.id} did not take all of the diagnosis \(UsageError: "):
        fanout.close(FAILED)
    assert from_json(Path(run.dir, "neuraldbg", "diagnosis.json").read_text()) == FAILED
    assert told(run).exit_code == 0
