"""A labelled training of each cause, as the site's pages show it."""

from __future__ import annotations

import json

import pytest

from benchmarks import causes, corpus
from neuraldbg.reasoning.discovery import rules


def test_a_training_of_two_faults_at_once_is_no_example_of_either() -> None:
    joined = [job for job in corpus.runs(kind="faulty") if "+" in str(job.fault)]
    shown = {job.name for cause, _ in rules() for job in causes.trainings(cause)}
    assert joined and not shown & {job.name for job in joined}


def test_a_training_is_an_example_of_the_cause_that_its_label_names_first() -> None:
    found = causes.trainings("nan_in_input")
    assert found and {job.label.causes[0] for job in found} == {"nan_in_input"}


def test_trainings_outside_of_the_test_split_come_first() -> None:
    late = [job.split == "test" for job in causes.trainings("nan_in_input")]
    assert late == sorted(late)


def test_a_second_try_is_another_program() -> None:
    first, second, third = causes.spread(causes.trainings("nan_in_input"))
    assert len({first.program, second.program, third.program}) == 3
    assert causes.spread([first]) == [first]


def test_a_cause_without_a_training_is_refused_with_those_that_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert causes.main(["no_such_cause"]) == 2
    said = capsys.readouterr().err
    assert "no training of 'no_such_cause'" in said and "nan_in_input" in said


def test_the_verdict_of_a_training_is_kept_with_its_name() -> None:
    told = causes.shown("nan_in_input")
    assert told is not None and told["answer"] == "nan_in_input"
    assert told["training"] in {job.name for job in causes.trainings("nan_in_input")}
    assert told["text"].startswith("FAILED: NaN values detected")


def test_what_is_kept_is_of_trainings_that_the_corpus_has() -> None:
    kept = json.loads(causes.KEPT.read_text())
    assert len(kept) > 30
    names = {cause: {job.name for job in causes.trainings(cause)} for cause in kept}
    assert [cause for cause, told in kept.items() if told["training"] not in names[cause]] == []
