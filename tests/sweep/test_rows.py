"""Where rows come from: folders, readers, command lines; and what is refused."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.events import observed
from neuraldbg.journal import Journal
from neuraldbg.record import OptimizerFacts
from neuraldbg.report.json import to_json
from neuraldbg.sweep import rows as module
from neuraldbg.sweep.rows import Row, arguments, facts_parameters, rows_of, value
from neuraldbg.testing import facts, parameter
from neuraldbg.testing import module as layer

FAILED = Diagnosis(
    Verdict.FAILED,
    0.9,
    hypotheses=(CausalHypothesis("dead_neurons", "learning_rate_too_high", "act1", 22, 0.8, "Neuron death detected"),),
    facts=facts(optimizers=(OptimizerFacts("SGD", (0.5,)),)),
    steps=40,
)


def test_a_source_that_is_not_there_is_an_error_that_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    with pytest.raises(LookupError, match=r"no file or folder '.*gone'; give one, or a tracker's runs"):
        rows_of(str(tmp_path / "gone"))
    with pytest.raises(LookupError, match="no reader 'comet' for 'comet:digits'; the readers are: none is installed"):
        rows_of("comet:digits")
    with pytest.raises(LookupError, match="there is no diagnosis"):
        list(rows_of(str(tmp_path)))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "diagnosis.json").write_text('{"schema_version": 99}')
    with pytest.raises(ValueError, match=r"diagnosis\.json: this diagnosis has schema_version 99"):
        list(rows_of(str(tmp_path)))


def test_a_reader_of_an_installed_package_is_found_by_its_name(monkeypatch):
    points = [EntryPoint("comet", f"{__name__}:read", "neuraldbg.readers")]
    monkeypatch.setattr(module, "entry_points", lambda group: points)
    assert list(rows_of("comet:team/digits")) == [Row("team/digits")]


def read(source):
    yield Row(source)


def test_a_folder_gives_a_row_a_session_with_what_was_typed_before_what_was_seen(tmp_path):
    run = tmp_path / "a"
    run.mkdir()
    (run / "diagnosis.json").write_text(to_json(FAILED))
    (run / "run.json").write_text(json.dumps({"arguments": ["--lr", "0.3", "--optimizer=mine"]}))
    journal = Journal(tmp_path / "b.jsonl")
    journal.open(facts())
    journal.event(observed("nan_input", 3))
    journal.points(3, {"loss": 1.0})
    assert list(rows_of(str(tmp_path)))[1] == Row(
        "a",
        "failed",
        "learning_rate_too_high",
        "act1",
        22,
        0.8,
        {"lr": 0.3, "optimizer": "mine", "learning_rate": 0.5, "weight_decay": 0.0, "momentum": 0.0},
        str(run / "diagnosis.json"),
    )
    assert next(rows_of(str(tmp_path))).name == "b"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ([], {}),
        (["data.csv", "3"], {}),
        (["--lr", "0.1"], {"lr": 0.1}),
        (["--lr=-1e-3", "--shift", "-2"], {"lr": -1e-3, "shift": -2.0}),
        (["--amp", "--model", "cnn"], {"amp": True, "model": "cnn"}),
        (["model=cnn", "optim.lr=1"], {"model": "cnn", "optim.lr": 1.0}),
        (["--a", "x=1"], {"a": "x=1"}),
        (["--last"], {"last": True}),
        (["--", "x"], {}),
    ],
)
def test_a_command_line_as_hyper_parameters(typed, found):
    assert arguments(typed) == found


def test_values_as_trackers_write_them():
    assert [value(t) for t in ("1e-3", "64", "true", "False", "relu", "")] == [1e-3, 64.0, True, False, "relu", ""]


def test_what_watching_knows_of_hyper_parameters():
    known = facts(
        layer("fc1", parameters=20),
        layer("act", activation="relu"),
        layer("fc2", parameters=20),
        parameters=(parameter("fc1.weight", numel=15), parameter("fc2.weight", numel=25)),
        optimizers=(OptimizerFacts("SGD", (0.1, 0.01), weight_decay=1e-4, momentum=0.9), OptimizerFacts("Adam", ())),
        loss_kind="mse",
    )
    assert facts_parameters(known) == {
        "optimizer": "SGD",
        "learning_rate": 0.1,
        "weight_decay": 1e-4,
        "momentum": 0.9,
        "optimizer_2": "Adam",
        "weight_decay_2": 0.0,
        "momentum_2": 0.0,
        "activation": "relu",
        "layers": 2.0,
        "parameters": 40.0,
        "loss": "mse",
    }
