"""Rows 17 to 19 of docs/design/patterns.md: two to four ranks over gloo, DDP and FSDP2; a row's name is its test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neuraldbg.cli import app

PROGRAM = Path(__file__).parent / "programs" / "ranks.py"


def ended(folder: Path, *arguments: str, world: int = 2) -> list[tuple[int, str, str]]:
    """(exit status, stdout, stderr) of each rank; the watched sessions leave their journals in folder/journals."""
    store = folder / "store"
    environment = {**os.environ, "NEURALDBG_DIR": str(folder / "journals")}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), f"{rank}/{world}", str(store), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=120) for rank in ranks]
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, said, strict=True)]


def trained(folder: Path, *arguments: str, world: int = 2) -> list[list[dict[str, Any]]]:
    """[rank][bare, watched] of a training on these ranks."""
    said = ended(folder, *arguments, world=world)
    assert not any(code for code, _, _ in said), said
    return [json.loads(out.splitlines()[-1]) for _, out, _ in said]


def merged(folder: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["merge", str(folder / "journals"), "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.output))


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """To the bit: JSON gives back the float that was written, NaN as NaN."""
    return repr([a["losses"], a["weights"], a["held"]]) == repr([b["losses"], b["weights"], b["held"]])


def test_row_17_under_ddp_each_rank_sees_its_own_gradients_before_they_are_reduced(tmp_path: Path) -> None:
    ranks = trained(tmp_path, "ddp")
    for bare, watched in ranks:
        assert same(bare, watched)
        assert watched["steps"] == 4
        assert watched["seen"] == [pytest.approx(step) for step in bare["local"]]
        assert watched["seen"][0] != pytest.approx(bare["held"][0])
    assert ranks[0][1]["seen"][0] != pytest.approx(ranks[1][1]["seen"][0])
    assert ranks[0][1]["held"] == ranks[1][1]["held"]


@pytest.mark.parametrize("how", ["after", "before"])
def test_rows_18_and_19_under_fsdp2_this_ranks_part_of_weights_and_gradients_is_seen(tmp_path: Path, how: str) -> None:
    ranks = trained(tmp_path, how)
    unseen = 1 if how == "before" else 0  # the sharded parameters are met at the first optimizer step
    for bare, watched in ranks:
        assert same(bare, watched)
        assert watched["steps"] == 4
        assert watched["verdict"] == "healthy"
        assert watched["seen"][unseen:] == [pytest.approx(step) for step in bare["held"][unseen:]]
        assert watched["moved"][-1] == dict.fromkeys(bare["held"][-1], True)
        assert "parameters are sharded: weights and gradients are those of this rank's part" in watched["notes"]
    (_, whole), (_, lacking) = ranks
    assert len(whole["notes"]) == 1
    assert "'last.weight' (all of it on other ranks)" in lacking["notes"][1]


@pytest.mark.parametrize("how", ["ddp", "after"])
def test_a_broken_batch_on_one_rank_is_named_by_that_rank_alone(tmp_path: Path, how: str) -> None:
    (_, other), (bare, hit) = trained(tmp_path, how, "2", "nan")
    assert same(bare, hit)
    assert hit["cause"] == ["nan_in_input", 2]
    assert other["cause"] is None or other["cause"][0] != "nan_in_input"
    told = merged(tmp_path)
    assert told["first"] == {"rank": 1, "step": 2, "cause": "nan_in_input", "layer": None, "local": True}
    assert (told["world"], told["missing"], told["stopped"]) == (2, [], {})


def test_of_four_ranks_the_one_with_the_broken_batch_is_named_and_the_others_follow(tmp_path: Path) -> None:
    ranks = trained(tmp_path, "ddp", "2", "nan", world=4)
    assert all(same(bare, watched) for bare, watched in ranks)
    told = merged(tmp_path)
    assert told["first"] == {"rank": 1, "step": 2, "cause": "nan_in_input", "layer": None, "local": True}
    assert (told["world"], told["missing"], told["stopped"]) == (4, [], {})
    assert set(told["later"]) == {"0", "2", "3"}
    assert min(told["later"].values()) >= 2


def test_of_three_ranks_the_killed_one_is_named(tmp_path: Path) -> None:
    said = ended(tmp_path, "after", "20", "kill", world=3)
    assert said[1][0] == -9 and all(said[rank][0] for rank in (0, 2))  # the others' collective fails
    told = merged(tmp_path)
    assert told["world"] == 3 and "1" in told["stopped"]
    assert 15 <= told["stopped"]["1"] <= 20


def test_a_rank_that_was_killed_is_named_by_what_its_journal_has(tmp_path: Path) -> None:
    codes = [code for code, _, _ in ended(tmp_path, "ddp", "20", "kill")]
    assert codes[0] != 0  # the other's collective fails
    assert codes[1] == -9
    told = merged(tmp_path)
    assert list(told["stopped"]) == ["1"]
    assert 15 <= told["stopped"]["1"] <= 20


def test_under_a_process_group_no_batch_goes_through_the_model_again(tmp_path: Path) -> None:
    """A replay would start collectives that the other rank knows nothing of."""
    _, (bare, hit) = trained(tmp_path, "ddp", "2", "1e30")
    assert same(bare, hit)
    assert hit["notes"] == ["replay of step 2: declined, a process group is open: the other ranks would wait"]
