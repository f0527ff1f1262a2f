"""Ending a training: only for what is terminal, only when asked, and only after the diagnosis is stored."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg, TrainingFailed, Verdict
from neuraldbg.events import observed
from neuraldbg.journal import read
from neuraldbg.testing import Memory, record
from neuraldbg.watch.stopping import BAD_LOSSES, SKIPS, Stopper


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch):
    """Not strict: an exception that was asked for must pass where ours would be kept."""
    monkeypatch.setenv("NEURALDBG_STRICT", "0")


class Training:
    """A small regression; from `bad` on its batches hold NaN, for `count` steps. `skips` leaves those steps out."""

    def __init__(self, bad=None, count=10**6, skips=False):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.bad, self.count, self.skips = bad, count, skips
        self.steps = 0

    def run(self, dbg, steps=80):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        for step in range(steps):
            if dbg.should_stop:
                return
            inputs = torch.randn(16, 4)
            if self.bad is not None and self.bad <= step < self.bad + self.count:
                inputs[0, 0] = math.nan
            loss = (self.model(inputs) - inputs.nan_to_num().sum(1, keepdim=True)).pow(2).mean()
            self.steps += 1
            if self.skips and not loss.isfinite():
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @property
    def hooks(self):
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in self.model.modules())


@pytest.mark.parametrize("wrong", ["exit", "", 3, True])
def test_what_is_no_answer_to_a_failure_is_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=r'on_failure=.*give "raise", "stop" or a function'):
        NeuralDbg(nn.Linear(1, 1), on_failure=wrong)


@pytest.mark.parametrize("on_failure", [None, "raise", "stop"])
def test_a_healthy_training_goes_to_its_end(on_failure):
    training = Training()
    with NeuralDbg(training.model, on_failure=on_failure) as dbg:
        training.run(dbg)
    assert training.steps == 80 and not dbg.should_stop and dbg.diagnose().verdict is Verdict.HEALTHY


def test_without_being_asked_nothing_is_ended():
    training = Training(bad=20)
    with NeuralDbg(training.model) as dbg:
        training.run(dbg)
    assert training.steps == 80 and not dbg.should_stop and dbg.diagnose().verdict is Verdict.FAILED


def test_a_few_bad_batches_that_the_loop_skips_end_nothing():
    training = Training(bad=20, count=BAD_LOSSES - 2, skips=True)
    with NeuralDbg(training.model, on_failure="raise") as dbg:
        training.run(dbg)
    assert training.steps == 80


def test_weights_that_are_not_finite_are_raised_with_their_cause_after_the_diagnosis_is_stored(tmp_path):
    training, sink = Training(bad=20), Memory()
    with (
        pytest.raises(TrainingFailed, match="FAILED: NaN values") as caught,
        NeuralDbg(training.model, on_failure="raise", sinks=[sink], journal_dir=tmp_path) as dbg,
    ):
        training.run(dbg)
    found = caught.value.diagnosis
    assert found.verdict is Verdict.FAILED and found.top is not None
    assert (found.top.cause, found.top.step) == ("nan_in_input", 20)
    assert 20 < training.steps < 40 and training.hooks == 0
    assert sink.diagnosis == found == dbg.diagnose()
    assert dbg.journal is not None and read(dbg.journal).diagnosis == found
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_loop_that_asks_is_told_to_stop():
    training = Training(bad=20)
    with NeuralDbg(training.model, on_failure="stop") as dbg:
        training.run(dbg)
    assert dbg.should_stop and 20 < training.steps < 40 and training.hooks == 0
    assert dbg.diagnose().verdict is Verdict.FAILED


def test_a_function_gets_the_diagnosis_once_and_the_training_goes_on():
    training, got = Training(bad=20), []
    with NeuralDbg(training.model, on_failure=got.append) as dbg:
        optimizer = torch.optim.SGD(training.model.parameters(), lr=0.05)
        for step in range(60):
            inputs = torch.full((4, 4), math.nan if step >= 20 else 1.0)
            training.model(inputs).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (found,) = got
    assert found.verdict is Verdict.FAILED and found == dbg.diagnose() and dbg.should_stop


def test_what_a_function_raises_reaches_the_loop_as_it_is():
    class Pruned(Exception):
        """Such as a tuner's."""

    def prune(diagnosis):
        raise Pruned(diagnosis.top.cause)

    training = Training(bad=20)
    with pytest.raises(Pruned, match="nan_in_input"), NeuralDbg(training.model, on_failure=prune) as dbg:
        training.run(dbg)


def test_soft_symptoms_ask_for_nothing_and_terminal_ones_do():
    soft = [
        observed(s, 3) for s in ("loss_spike", "loss_plateau", "dead_units", "loss_nonfinite", "nonfinite_gradient")
    ]
    assert not Stopper("stop").look(record(3, loss=1.0), soft)
    assert Stopper("stop").look(record(3, loss=1.0), [observed("nonfinite_weight", 3)])
    assert not Stopper(None).look(record(3, loss=1.0), [observed("nonfinite_weight", 3)])


def test_losses_and_skips_count_in_a_row_only():
    stopper = Stopper("stop")
    losses = [math.nan] * (BAD_LOSSES - 1) + [1.0] + [math.inf] * BAD_LOSSES
    asked = [stopper.look(record(k, loss=loss), []) for k, loss in enumerate(losses)]
    assert asked == [False] * (len(losses) - 1) + [True]
    stopper = Stopper("stop")
    skips = [True] * (SKIPS - 1) + [False] + [True] * SKIPS
    asked = [stopper.look(record(k, loss=1.0, skipped=skip), []) for k, skip in enumerate(skips)]
    assert asked == [False] * (len(skips) - 1) + [True]


def test_a_scaler_that_skips_every_step_ends_it():
    training = Training()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    with NeuralDbg(training.model, on_failure="stop") as dbg:
        optimizer = torch.optim.SGD(training.model.parameters(), lr=0.05)
        for step in range(150):
            if dbg.should_stop:
                break
            loss = training.model(torch.randn(8, 4)).pow(2).mean() * (math.inf if step >= 20 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert dbg.should_stop and step < 100
