from __future__ import annotations

from functools import partial

from neuraldbg.rules.zeroed_inputs import zeroed_inputs
from neuraldbg.testing import check_explains, check_silent, observed, run

silent = partial(check_silent, zeroed_inputs)
explains = partial(check_explains, zeroed_inputs)


def test_one_empty_batch_in_a_long_run_is_only_noted() -> None:
    silent(run(observed("zero_batch", 500, share=0.001)))


def test_a_spike_elsewhere_is_not_its_doing() -> None:
    silent(run(observed("zero_batch", 500, share=0.001), observed("loss_spike", 300, decades=1.0)))


def test_batches_that_arrive_as_zeros() -> None:
    explains(run(observed("zero_batch", 28, share=0.08)), step=28, failure="data_anomaly")


def test_one_empty_batch_at_which_the_loss_jumps() -> None:
    explains(run(observed("zero_batch", 500, share=0.001), observed("loss_spike", 500, decades=1.0)), step=500)
