"""Where a setting comes from: argument, then environment, then pyproject.toml, then the default."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from neuraldbg.settings import Settings, make


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """An empty folder and no variable of ours."""
    import os

    for name in list(os.environ):
        if name.startswith("NEURALDBG_") and name != "NEURALDBG_STRICT":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(text):
    Path("pyproject.toml").write_text(text)


def test_the_defaults_are_those_of_the_readme():
    s = Settings()
    assert (s.threshold_vanishing, s.threshold_exploding, s.coupling_window) == (1e-6, 1e3, 5)
    assert (s.enabled, s.dense_steps, s.cadence, s.journal_dir) == (True, 500, None, None)


def test_a_pyproject_without_our_table_changes_nothing():
    write('[project]\nname = "x"\n[tool.other]\ndense_steps = 1\n')
    assert make() == Settings()
    assert make().dense_steps == 500


def test_each_source_gives_way_to_the_one_above(monkeypatch):
    assert make().dense_steps == 500
    write("[tool.neuraldbg]\ndense_steps = 40\nsparse_every = 4\nmax_events = 44\n")
    assert make().dense_steps == 40
    monkeypatch.setenv("NEURALDBG_DENSE_STEPS", "30")
    monkeypatch.setenv("NEURALDBG_SPARSE_EVERY", "3")
    assert make().dense_steps == 30
    s = make(dense_steps=20)
    assert (s.dense_steps, s.sparse_every, s.max_events) == (20, 3, 44)


@pytest.mark.parametrize(("text", "value"), [("0", False), ("false", False), ("1", True), ("yes", True)])
def test_watching_is_turned_off_by_the_environment(text, value, monkeypatch):
    monkeypatch.setenv("NEURALDBG_ENABLED", text)
    assert make().enabled is value


def test_the_journals_folder_has_a_short_variable(monkeypatch):
    monkeypatch.setenv("NEURALDBG_DIR", "logs/here")
    assert make().journal_dir == Path("logs/here")
    assert make(journal_dir="there").journal_dir == Path("there")


def test_the_journals_folder_has_the_variable_of_its_name_too(monkeypatch):
    monkeypatch.setenv("NEURALDBG_JOURNAL_DIR", "logs/here")
    assert make().journal_dir == Path("logs/here")


def test_a_variable_of_anothers_that_is_named_like_a_setting_is_not_ours(monkeypatch):
    monkeypatch.setenv("JOURNAL_DIR", "elsewhere")
    monkeypatch.setenv("CADENCE", "7")
    assert make() == Settings()
    assert (make().journal_dir, make().cadence) == (None, None)


def test_the_journals_folder_can_stand_in_pyproject():
    write('[tool.neuraldbg]\njournal_dir = "logs"\n')
    assert make().journal_dir == Path("logs")


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match=r"unknown setting 'cadense'; the settings are: .*cadence.*threshold_vanishing"):
        make(cadense=3)


def test_an_unknown_name_in_pyproject_is_refused():
    write("[tool.neuraldbg]\ndense_stepz = 40\n")
    with pytest.raises(ValidationError, match="dense_stepz"):
        make()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dense_steps", 0),
        ("dense_seconds", 0),
        ("sparse_every", -1),
        ("cadence", 0),
        ("threshold_vanishing", -1e-6),
        ("threshold_exploding", 0),
        ("coupling_window", -1),
        ("max_events", 1),
        ("memory_mb", 0),
        ("dense_steps", "many"),
        ("overhead_budget", 2),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(name, value):
    with pytest.raises(ValidationError, match=name):
        make(**{name: value})


def test_the_environment_is_refused_by_name_too(monkeypatch):
    monkeypatch.setenv("NEURALDBG_DENSE_STEPS", "many")
    with pytest.raises(ValidationError, match="dense_steps"):
        make()


def test_a_variable_of_another_part_of_ours_is_no_setting(monkeypatch):
    monkeypatch.setenv("NEURALDBG_STRICT", "1")
    assert make() == Settings()


def test_every_field_stands_in_the_docstring():
    text = Settings.__doc__ or ""
    assert [name for name in Settings.model_fields if name not in text] == []
