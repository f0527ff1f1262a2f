from __future__ import annotations

from neuraldbg.reasoning import diagnose
from neuraldbg.rules.overfitting import overfitting
from neuraldbg.testing import observed, run

RISE = observed("validation_rise", 39, best=0.5, last=0.9, times=1.8, training=0.1)


def test_without_a_validation_loss_nothing_is_said() -> None:
    assert list(overfitting(run(observed("loss_plateau", 3)))) == []


def test_a_validation_loss_that_climbs_is_a_note_from_its_best_step_on() -> None:
    (claim,) = overfitting(run(RISE))
    assert (claim.cause, claim.step, claim.layer_name, claim.outcome) == ("overfitting", 39, None, False)
    assert "rose from 0.5 to 0.9" in claim.summary and "step 39" in claim.remedy


def test_it_warns_and_stays_below_one_half() -> None:
    said = diagnose(run(RISE))
    assert said.verdict == "warning"
    assert [n.cause for n in said.notes] == ["overfitting"] and said.notes[0].confidence < 0.5
