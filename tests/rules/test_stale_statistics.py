from __future__ import annotations

from neuraldbg.reasoning import diagnose
from neuraldbg.rules.stale_statistics import stale_statistics
from neuraldbg.testing import observed, run

STALE = observed("stale_statistics", 0, "norm", times=4.2, running=1.36, batch=5.67)


def test_a_norm_in_eval_mode_is_another_matter() -> None:
    assert list(stale_statistics(run(observed("eval_mode", 0, modules=1)))) == []


def test_it_is_a_note_that_warns_with_both_numbers_and_stays_below_one_half() -> None:
    said = diagnose(run(STALE))
    assert said.verdict == "warning" and said.hypotheses == ()
    (note,) = said.notes
    assert (note.cause, note.layer_name) == ("stale_statistics", "norm") and note.confidence < 0.5
    assert "5.67 in training" in note.description and "stand for 1.36" in note.description
