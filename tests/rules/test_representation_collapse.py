from __future__ import annotations

from collections.abc import Sequence

import pytest

from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning import diagnose
from neuraldbg.rules.representation_collapse import representation_collapse
from neuraldbg.run import Run
from neuraldbg.testing import observed, run

SAME = observed("constant_output", 80, "head", spread_lg=-4.2, at_start=False)
FELL = [0.9**k for k in range(100)]


def seen(*events: SemanticEvent, loss: Sequence[float] = FELL, **more: Sequence[float]) -> Run:
    return run(*events, series={"loss": loss, **more})


@pytest.mark.parametrize(
    "other",
    [
        seen(),
        seen(observed("constant_output", 0, "head", spread_lg=-9.0, at_start=True)),
        seen(SAME, skill=[1.0] * 100),
        seen(SAME, loss=[1.0] * 100),
        seen(SAME, observed("violent_update", 2, update_lg=0.0)),
        seen(SAME, observed("dead_units", 60, "relu", share=1.0)),
    ],
    ids=["no collapse", "from the start", "a loss against targets", "no fall", "thrown there", "dead units"],
)
def test_other_constant_outputs_have_other_causes(other: Run) -> None:
    assert list(representation_collapse(other)) == []


def test_a_loss_that_falls_while_all_outputs_become_one_is_a_note_that_warns() -> None:
    said = diagnose(seen(SAME))
    assert said.verdict == "warning"
    (note,) = said.notes
    assert (note.cause, note.layer_name, note.step) == ("representation_collapse", "head", 80)
    assert note.confidence < 0.5 and "1e-4 of its size" in note.description
