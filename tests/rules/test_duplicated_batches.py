from __future__ import annotations

from functools import partial

from neuraldbg.rules.duplicated_batches import duplicated_batches
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, duplicated_batches)
explains = partial(check_explains, duplicated_batches)


def test_other_data_events_are_other_causes() -> None:
    silent(run(observed("zero_batch", 3, share=0.5), observed("input_shift", 3, z=50.0)))


def test_two_batches_again_and_again() -> None:
    claim = explains(
        run(observed("repeated_batch", 2, distinct=2, seen=200, share=0.75)), step=2, failure="data_anomaly"
    )
    assert claim.summary == "2 distinct batches in 200"
