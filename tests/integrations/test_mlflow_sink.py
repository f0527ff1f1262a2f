"""The sink writes into the right run, and a server that is gone costs neither the training nor the diagnosis."""

from __future__ import annotations

import functools
import http.server
import itertools
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Experiment

from neuraldbg import journal
from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.integrations import _mlflow_content as content
from neuraldbg.integrations.mlflow import MlflowSink, install_view, replay
from neuraldbg.record import RunFacts
from neuraldbg.sinks import FanOut

FACTS = RunFacts(models=("Net",))
SPIKE = observed("loss_spike", 4, None)
TOP = CausalHypothesis(
    "optimizer_instability", "learning_rate_too_high", None, 3, 0.87, "The loss jumped", evidence=(SPIKE,)
)
FAILED = Diagnosis(Verdict.FAILED, 0.9, hypotheses=(TOP,), events=(SPIKE,), facts=FACTS, steps=9)
HEALTHY = Diagnosis(Verdict.HEALTHY, 0.02, facts=FACTS, steps=9)


def session(sink: MlflowSink, diagnosis: Diagnosis = FAILED, inside: Callable[[], None] = lambda: None) -> float:
    """A session with one sink; how long its end took."""
    fanout = FanOut([sink])
    fanout.open(FACTS)
    fanout.points(0, {"loss": 2.0})
    for event in diagnosis.events:
        fanout.event(event)
    inside()
    start = time.monotonic()
    fanout.close(diagnosis)
    return time.monotonic() - start


def experiment() -> Experiment:
    found = mlflow.get_experiment_by_name("test")
    assert found is not None
    return found


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


# -- into which run ---------------------------------------------------------------------------------------------------


def test_a_session_without_a_step_writes_nothing_at_all(runs: Any, tmp_path: Path) -> None:
    session(MlflowSink(spool_dir=tmp_path / "spool"), Diagnosis(Verdict.RUNNING, 0.0))  # one point came, no step ended
    fanout = FanOut([MlflowSink(spool_dir=tmp_path / "spool")])
    fanout.open(FACTS)
    fanout.close(Diagnosis(Verdict.HEALTHY, 0.0))
    assert runs() == []
    assert left(tmp_path / "spool") == []


def test_never_making_a_run_is_respected(runs: Any, tmp_path: Path) -> None:
    session(MlflowSink(create_run="never", spool_dir=tmp_path / "spool"))
    assert runs() == []
    assert left(tmp_path / "spool") == []


def test_everything_lands_in_the_active_run_and_nothing_stays_on_disk(told: Any, runs: Any, tmp_path: Path) -> None:
    with mlflow.start_run() as run:
        session(MlflowSink())
    got = told(run)
    assert got.tags["verdict"] == "failed"
    assert got.tags["cause"] == "learning_rate_too_high"
    assert got.metrics["neuraldbg/events"] == 1
    assert got.files == set(content.files(FAILED))
    assert "get-artifact" not in got.note  # this diagnosis has no graph to show
    assert got.note.startswith(content.BEGIN)
    assert got.run.data.params == {}
    assert len(runs()) == 1
    assert not (tmp_path / ".neuraldbg").exists()


def test_the_diagnosis_in_the_run_loads_back_equal(told: Any) -> None:
    from neuraldbg.report.json import from_json

    with mlflow.start_run() as run:
        session(MlflowSink())
    assert from_json(told(run).text("neuraldbg/diagnosis.json")) == FAILED


def test_mlflow_reads_our_table_of_hypotheses() -> None:
    with mlflow.start_run() as run:
        session(MlflowSink())
    table = mlflow.load_table("neuraldbg/hypotheses.json", run_ids=[run.info.run_id])
    assert list(table["cause"]) == ["learning_rate_too_high"]


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_the_status_of_a_run_is_its_owners(told: Any, status: str) -> None:
    run = mlflow.start_run()
    fanout = FanOut([MlflowSink()])
    fanout.open(FACTS)
    fanout.event(SPIKE)
    mlflow.end_run(status)
    before = mlflow.get_run(run.info.run_id).info
    fanout.close(FAILED)
    after = told(run)
    assert (after.run.info.status, after.run.info.end_time) == (status, before.end_time)
    assert after.tags["verdict"] == "failed"


def test_a_run_that_opens_late_is_still_found(told: Any) -> None:
    fanout = FanOut([MlflowSink()])
    fanout.open(FACTS)
    fanout.points(0, {"loss": 1.0})
    with mlflow.start_run() as run:
        fanout.points(1, {"loss": 1.0})
    with mlflow.start_run() as other:
        fanout.close(FAILED)
    assert told(run).tags["verdict"] == "failed"
    assert told(other).tags == {}


def test_the_run_active_when_a_session_opens_is_not_taken_before_it_trains(told: Any) -> None:
    fanout = FanOut([MlflowSink()])
    with mlflow.start_run() as early:
        fanout.open(FACTS)
    with mlflow.start_run() as run:
        fanout.points(0, {"loss": 1.0})
    fanout.close(FAILED)
    assert told(early).tags == {}
    assert told(run).tags["verdict"] == "failed"


def test_the_innermost_run_wins(told: Any) -> None:
    with mlflow.start_run() as outer, mlflow.start_run(nested=True) as inner:
        session(MlflowSink())
    assert told(outer).tags == {}
    assert told(inner).tags["verdict"] == "failed"


def test_a_given_run_is_used_whatever_is_active(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = mlflow.MlflowClient().create_run(experiment().experiment_id)
    with mlflow.start_run() as active:
        session(MlflowSink(run_id=given.info.run_id))
        monkeypatch.setenv("NEURALDBG_MLFLOW_RUN_ID", given.info.run_id)
        session(MlflowSink(), HEALTHY)
    assert told(active).tags == {}
    assert told(given).tags["verdict"] == "healthy"
    assert told(given).run.info.status == "RUNNING"


@pytest.mark.parametrize(("create_run", "status"), [("if_none", "FINISHED"), ("leave_open", "RUNNING")])
def test_where_no_run_was_active_one_is_made_and_ended_unless_told_otherwise(
    runs: Any, create_run: str, status: str
) -> None:
    session(MlflowSink(create_run=create_run))
    assert mlflow.active_run() is None
    (made,) = runs()
    assert made.run.info.status == status
    assert made.tags["managed"] == "true"
    assert made.tags["cause"] == "learning_rate_too_high"
    assert made.run.info.experiment_id == experiment().experiment_id


def test_exclusive_leaves_the_users_run_alone(told: Any, runs: Any) -> None:
    with mlflow.start_run() as run:
        session(MlflowSink(exclusive=True))
    assert told(run).tags == {}
    assert [r.tags["verdict"] for r in runs() if r.run.info.run_id != run.info.run_id] == ["failed"]


@pytest.mark.parametrize("flag", ["log_tags", "log_metrics", "log_artifacts", "log_description"])
def test_each_flag_leaves_out_its_part_only(told: Any, flag: str) -> None:
    with mlflow.start_run() as run:
        session(MlflowSink(**{flag: False}))
    got = told(run)
    written = {
        "log_tags": bool(got.tags),
        "log_metrics": bool(got.metrics),
        "log_artifacts": bool(got.files) and "mlflow.loggedArtifacts" in got.run.data.tags,
        "log_description": bool(got.note),
    }
    assert written == {name: name != flag for name in written}


def test_a_second_session_in_a_run_replaces_the_first_and_keeps_the_users_text(told: Any) -> None:
    with mlflow.start_run(description="My own words.") as run:
        session(MlflowSink())
        session(MlflowSink(), HEALTHY)
    got = told(run)
    assert got.tags["verdict"] == "healthy"
    assert not [key for key in got.tags if key.startswith("event.")]
    assert got.note.startswith("My own words.\n\n")
    assert got.note.count(content.BEGIN) == 1
    assert got.json("neuraldbg/hypotheses.json")["data"] == []
    assert len(json.loads(got.run.data.tags["mlflow.loggedArtifacts"])) == 1


def test_the_run_shows_running_and_its_events_while_it_trains(told: Any) -> None:
    seen: list[dict[str, str]] = []

    def wait(run_id: str) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and "event.loss_spike" not in told(run_id).tags:
            time.sleep(0.05)
        seen.append(told(run_id).tags)

    with mlflow.start_run() as run:
        session(MlflowSink(flush_interval=0.05), inside=functools.partial(wait, run.info.run_id))
    assert seen[0]["verdict"] == "running"
    assert seen[0]["event.loss_spike"] == "@4 x1"


def test_many_events_are_few_requests_and_a_running_total(told: Any) -> None:
    events = tuple(observed("loss_spike", step) for step in range(2000))
    with mlflow.start_run() as run:
        session(MlflowSink(), Diagnosis(Verdict.FAILED, 0.9, events=events, steps=2000))
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "neuraldbg/events")
    assert len(history) < 1000
    assert max(m.value for m in history) == 2000
    assert told(run).tags["event.loss_spike"] == "@0 x2000"


def test_two_sessions_in_two_threads_each_report_into_their_own_run(told: Any) -> None:
    ids: dict[str, str] = {}

    def train(name: str, diagnosis: Diagnosis) -> None:
        with mlflow.start_run(run_name=name) as run:
            ids[name] = run.info.run_id
            session(MlflowSink(), diagnosis)

    threads = [threading.Thread(target=train, args=pair) for pair in (("a", FAILED), ("b", HEALTHY))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told(ids["a"]).tags["verdict"] == "failed"
    assert told(ids["b"]).tags["verdict"] == "healthy"


def test_wrong_values_are_refused_with_their_name() -> None:
    with pytest.raises(ValueError, match=r"create_run='always' is unknown; use one of: if_none, leave_open, never"):
        MlflowSink(create_run="always")
    with pytest.raises(ValueError, match="close_timeout=-1 is no positive number"):
        MlflowSink(close_timeout=-1)
    with pytest.raises(ValueError, match="flush_interval='soon' is no positive number"):
        MlflowSink(flush_interval="soon")
    with pytest.raises(ValueError, match=r"extra_tags=\['a'\] is no mapping"):
        MlflowSink(extra_tags=["a"])


# -- a server that is gone --------------------------------------------------------------------------------------------


class _Failing(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(500, "out of order")

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """The test's output stays clean."""


@pytest.fixture(name="hung")
def _hung() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(name="refused")
def _refused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture(name="failing")
def _failing() -> Iterator[str]:
    """A server that answers every request with 500."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Failing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(name="lenient")
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run it: errors of a sink are told, not raised."""
    monkeypatch.delenv("NEURALDBG_STRICT")


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "neuraldbg" and r.levelno >= logging.WARNING]


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("kind", ["refused", "hung", "failing"])
@pytest.mark.parametrize("bound", [True, False])
def test_closing_is_bounded_warns_once_and_everything_can_be_pushed_later(
    kind: str,
    bound: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: str,
    told: Any,
    runs: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = request.getfixturevalue(kind)
    run = mlflow.MlflowClient().create_run(experiment().experiment_id) if bound else None
    mlflow.set_tracking_uri(gone)
    sink = MlflowSink(
        run_id=run.info.run_id if run else None, spool_dir=tmp_path / "spool", flush_interval=0.05, close_timeout=1.5
    )
    assert session(sink) < 1.5 + 0.5
    (warning,) = warned(caplog)
    (folder,) = (tmp_path / "spool").iterdir()
    assert str(folder) in warning
    assert f"replay('{folder}')" in warning
    assert set(left(folder)) == {Path(name).name for name in content.files(FAILED)} | {
        "neuraldbg.mlflow.jsonl",
        "target.json",
    }
    assert journal.rebuild(folder / "neuraldbg.mlflow.jsonl") == FAILED

    mlflow.set_tracking_uri(store)
    (pushed,) = replay(folder, tracking_uri=store)
    assert told(pushed).tags["cause"] == "learning_rate_too_high"
    assert told(pushed).files == set(content.files(FAILED))
    assert [r.run.info.run_id for r in runs()] == [pushed]
    assert not folder.exists()


@pytest.mark.usefixtures("lenient")
def test_events_cost_the_training_nothing_while_the_server_hangs(hung: str, tmp_path: Path) -> None:
    mlflow.set_tracking_uri(hung)
    fanout = FanOut([MlflowSink(run_id="abc", spool_dir=tmp_path / "spool", flush_interval=0.01, close_timeout=0.5)])
    fanout.open(FACTS)
    slowest = 0.0
    for step in range(1000):
        start = time.perf_counter()
        fanout.event(observed("loss_spike", step))
        slowest = max(slowest, time.perf_counter() - start)
    fanout.close(FAILED)
    assert slowest < 1.0  # a request to this server takes minutes
    (folder,) = (tmp_path / "spool").iterdir()
    assert len(journal.read(folder / "neuraldbg.mlflow.jsonl").events) == 1000


@pytest.mark.usefixtures("lenient")
def test_silent_says_nothing_and_still_keeps_everything(
    refused: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow.set_tracking_uri(refused)
    session(MlflowSink(run_id="abc", silent=True, spool_dir=tmp_path / "spool", close_timeout=0.8))
    assert warned(caplog) == []
    assert "diagnosis.json" in left(tmp_path / "spool")


@pytest.mark.usefixtures("lenient")
def test_a_deleted_run_is_told_at_once_and_not_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mlflow.start_run() as run:
        pass
    mlflow.delete_run(run.info.run_id)
    assert session(MlflowSink(run_id=run.info.run_id, spool_dir=tmp_path / "spool")) < 3
    (warning,) = warned(caplog)
    assert "must be in the 'active' state" in warning


def test_three_failures_open_the_circuit_until_a_probe_is_due(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from neuraldbg.integrations import _mlflow_network as network

    tries: list[float] = []

    def send(*_: Any) -> None:
        tries.append(time.monotonic())
        raise OSError("out of order")

    monkeypatch.setattr(network, "send", send)
    monkeypatch.setattr(network, "BREAK_SECONDS", 0.4)
    sink = network.Network(network.Binding(network.Target(failing, "abc")), network.Choice(), flush_interval=0.01)
    sink.open(FACTS)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        sink.idle()
        time.sleep(0.002)
    waits = [b - a for a, b in itertools.pairwise(tries)]
    assert max(waits[:2]) < 0.2
    assert min(waits[2:]) >= 0.4
    start = time.monotonic()
    sink.close(FAILED)
    assert time.monotonic() - start < 0.1
    assert sink.delivered is None


def test_a_session_killed_in_mid_training_is_replayed_from_its_journal(told: Any, tmp_path: Path) -> None:
    with mlflow.start_run() as run:
        fanout = FanOut([MlflowSink(spool_dir=tmp_path / "spool")])
        fanout.open(FACTS)
        fanout.points(0, {"loss": 2.0})
        fanout.event(observed("nan_input", 0, None, features=(2,), share=0.1))
        end = time.monotonic() + 5
        while "nan_input" not in "".join(p.read_text() for p in tmp_path.rglob("*.jsonl")) and time.monotonic() < end:
            time.sleep(0.02)
    (folder,) = (tmp_path / "spool").iterdir()
    with (folder / "neuraldbg.mlflow.jsonl").open("a") as file:
        file.write('{"kind": "event", "val')
    assert replay(tmp_path / "spool") == [run.info.run_id]
    assert told(run).tags["event.nan_input"] == "@0 x1"
    assert told(run).tags["verdict"] != "running"


def test_replaying_what_is_no_spool_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="give the folder that NeuralDBG's warning named"):
        replay(tmp_path / "nowhere")


def test_a_spool_that_cannot_be_written_does_not_stop_the_report(told: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with mlflow.start_run() as run:
        session(MlflowSink(spool_dir=blocked))
    assert told(run).tags["verdict"] == "failed"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_worker_writes_nothing(told: Any) -> None:
    with mlflow.start_run() as run:
        fanout = FanOut([MlflowSink()])
        fanout.open(FACTS)
        fanout.event(SPIKE)
        child = os.fork()
        if child == 0:
            fanout.event(observed("nan_input", 1))
            fanout.close(HEALTHY)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        fanout.close(FAILED)
    assert told(run).tags["verdict"] == "failed"
    assert "event.nan_input" not in told(run).tags


# -- the saved view ---------------------------------------------------------------------------------------------------


def test_a_view_of_an_unknown_experiment_is_an_error_with_its_name() -> None:
    with pytest.raises(ValueError, match="no experiment with the name or id 'nowhere'"):
        install_view("nowhere")


def test_installing_the_view_twice_leaves_one() -> None:
    path = install_view("test")
    assert install_view(experiment().experiment_id) == path
    tags = experiment().tags
    (key,) = [k for k in tags if k.startswith("mlflow.sharedViewState.")]
    assert path == (
        f"/#/experiments/{experiment().experiment_id}/runs"
        f"?viewStateShareKey={key.rpartition('.')[2]}&workflowType=machine_learning"
    )
    assert json.loads(tags[key])["name"] == "NeuralDBG: by cause"
    assert len(tags[key]) < 20_000
