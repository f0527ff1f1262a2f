"""Journals of several ranks put together, and what `neuraldbg merge` says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neuraldbg.cli import app
from neuraldbg.diagnosis import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.ranks import Merged, RankRun, load, merge, rank_of
from neuraldbg.record import RunFacts
from neuraldbg.report import save
from neuraldbg.report.ranks import lines
from neuraldbg.testing import observed

HEALTHY = Diagnosis(Verdict.HEALTHY, 0.02, steps=50)


def failed(symptom: str, step: int, cause: str = "unknown") -> Diagnosis:
    event = observed(symptom, step)
    hypothesis = CausalHypothesis(
        failure_type="data_anomaly",
        cause=cause,
        layer_name=None,
        step=step,
        confidence=0.9,
        description=f"{cause} at step {step}",
        remedy="",
        evidence=(event,),
        causal_chain=(cause,),
        refuted_by="",
    )
    return Diagnosis(Verdict.FAILED, 0.99, (hypothesis,), steps=50)


def together(*diagnoses: Diagnosis) -> Merged:
    return merge(RankRun(rank, d, f"r{rank}") for rank, d in enumerate(diagnoses))


def test_healthy_ranks_have_no_first_failure() -> None:
    merged = together(HEALTHY, HEALTHY)
    assert merged.first is None
    assert lines(merged)[0] == ("First", "no rank shows a failure")


def test_what_all_ranks_show_at_once_is_no_ranks_own() -> None:
    merged = together(failed("nan_input", 7), failed("nan_input", 7))
    assert not merged.local
    assert merged.alike == (0, 1)
    assert "ranks 0, 1 at the same step 7" in dict(lines(merged))["Where"]


def test_what_comes_with_the_update_is_no_ranks_own() -> None:
    assert not together(failed("rate_jump", 7), HEALTHY).local


def test_the_earliest_step_names_the_rank_and_the_others_had_it_from_its_gradient() -> None:
    merged = together(failed("loss_nonfinite", 8), failed("nan_input", 7, "nan_in_input"), HEALTHY)
    assert merged.first is not None and merged.first.rank == 1
    assert merged.local
    assert merged.later == {0: 8}
    text = dict(lines(merged))
    assert text["First"].startswith("rank 1: nan_in_input at step 7")
    assert text["Where"].endswith("the others had it from the averaged gradient")


def test_within_a_step_the_earlier_phase_names_the_rank() -> None:
    merged = together(failed("loss_nonfinite", 7), failed("nan_input", 7))
    assert merged.first is not None and merged.first.rank == 1


def test_a_session_that_was_never_closed_and_a_rank_without_a_file_are_told() -> None:
    cut = replace(HEALTHY, steps=20, facts=RunFacts(rank=0, world=3))
    merged = merge([RankRun(0, cut, "a", ended=False), RankRun(1, HEALTHY, "b")])
    assert merged.stopped == {0: 20}
    assert merged.missing == (2,)
    assert "after 20 steps, without an end; the furthest has 50" in dict(lines(merged))["Stopped"]


def test_a_rank_is_known_by_its_facts_else_by_the_files_name() -> None:
    known = replace(HEALTHY, facts=RunFacts(rank=3, world=4))
    assert rank_of(known, "journal-rank1.jsonl") == 3
    assert rank_of(HEALTHY, "diagnosis-rank12.json") == 12
    with pytest.raises(ValueError, match=r"x\.json does not say which rank it is of; start the training with torchrun"):
        rank_of(HEALTHY, "x.json")


def test_two_files_of_one_rank_are_refused_by_name(tmp_path: Path) -> None:
    files = [tmp_path / "a-rank1.json", tmp_path / "b-rank1.json"]
    for file in files:
        save(HEALTHY, file)
    with pytest.raises(ValueError, match=r"a-rank1\.json and b-rank1\.json are both of rank 1"):
        load(files)


def test_merge_reads_the_files_of_a_folder(tmp_path: Path) -> None:
    save(HEALTHY, tmp_path / "diagnosis-rank0.json")
    save(failed("nan_input", 7, "nan_in_input"), tmp_path / "diagnosis-rank1.json")
    done = CliRunner().invoke(app, ["merge", str(tmp_path)])
    assert done.exit_code == 0
    assert "rank 1: nan_in_input at step 7" in " ".join(done.output.split())
    told = json.loads(CliRunner().invoke(app, ["merge", str(tmp_path), "--json"]).output)
    assert told["first"] == {"rank": 1, "step": 7, "cause": "nan_in_input", "layer": None, "local": True}


def test_merge_refuses_what_is_no_folder(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["merge", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "there is no folder" in done.output
