"""Errors: the user's pass through a session unchanged, ours never leave it."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.watch import signals
from tests.watch.sessions import hooks_of, net, train

# -- exceptions -------------------------------------------------------------------------------------------------------


class Raises(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error, self.weight, self.armed = error, nn.Parameter(torch.ones(8)), False

    def forward(self, x):
        if self.armed:
            raise self.error
        return x * self.weight


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_the_users_passes_unchanged_with_the_diagnosis_kept_and_the_module_named(error):
    model = nn.Sequential(nn.Linear(4, 8), Raises(error), nn.Linear(8, 1))
    dbg = NeuralDbg(model)
    with pytest.raises(type(error)) as caught, dbg:
        train(model, 4)
        model[1].armed = True
        train(model, 4)
    assert caught.value is error
    assert hooks_of(model) == 0
    diagnosis = dbg.diagnose()
    assert diagnosis.steps >= 4
    assert diagnosis.facts.exception == type(error).__name__
    assert (diagnosis.facts.exception_place, diagnosis.facts.exception_layer) == ("forward", "1")
    assert f"Exception: {type(error).__name__} in layer '1'" in str(diagnosis)


@pytest.mark.parametrize("grad", [True, False])
def test_the_module_is_named_on_a_step_that_is_not_sampled_and_in_an_evaluation_too(grad):
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(Raises(ValueError("mine"))), nn.Linear(8, 1))
    dbg = NeuralDbg(model, cadence=1000)
    with pytest.raises(ValueError, match="mine"), dbg:
        train(model, 6)
        model[1][0].armed = True
        with torch.set_grad_enabled(grad):
            model(torch.randn(2, 4))
    assert dbg.diagnose().facts.exception_layer == "1.0"


class Loop(nn.Linear):
    """A model whose own methods hold the training loop."""

    def fit(self):
        train(self, 2)
        raise ValueError("my check")


def of_the_loop(model):
    raise ValueError("my check")


def after_one_that_was_caught(model):
    with contextlib.suppress(RuntimeError):
        model(torch.randn(2, 3))
    raise ValueError("my check")


def in_a_method_of_the_model(model):
    model.fit()


@pytest.mark.parametrize("cadence", [1, 1000])
@pytest.mark.parametrize("raises", [of_the_loop, after_one_that_was_caught, in_a_method_of_the_model])
def test_an_exception_of_the_loop_itself_names_no_module_and_is_not_laid_to_the_model(raises, cadence):
    model = Loop(4, 1)
    dbg = NeuralDbg(model, cadence=cadence)
    with pytest.raises(ValueError, match="my check"), dbg:
        train(model, 2)
        raises(model)
    facts = dbg.diagnose().facts
    assert (facts.exception, facts.exception_place, facts.exception_layer) == ("ValueError", "loop", None)
    assert "Exception: ValueError in the training loop, outside of any forward or backward pass" in str(dbg.diagnose())


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no derivative")


class RefusesToStep(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("no step")


def in_backward(model):
    Refuses.apply(model(torch.randn(2, 4))).sum().backward()


def in_a_step(model):
    model(torch.randn(2, 4)).sum().backward()
    RefusesToStep(model.parameters(), lr=0.1).step()


@pytest.mark.parametrize("cadence", [1, 1000])
@pytest.mark.parametrize(
    ("raises", "place", "words"),
    [(in_backward, "backward", "in the backward pass"), (in_a_step, "optimizer", "in an optimizer step")],
)
def test_an_exception_in_backward_or_in_a_step_is_told_as_one(raises, place, words, cadence):
    model = net()
    dbg = NeuralDbg(model, cadence=cadence)
    with pytest.raises(ValueError, match="no "), dbg:
        train(model, 2)
        raises(model)
    facts = dbg.diagnose().facts
    assert (facts.exception_place, facts.exception_layer) == (place, None)
    assert f"Exception: ValueError {words}\n" in str(dbg.diagnose())


def test_an_exception_that_the_loop_raises_from_one_of_a_layer_names_that_layer():
    model = net()
    dbg = NeuralDbg(model)
    with pytest.raises(KeyError), dbg:
        train(model, 2)
        try:
            model(torch.randn(2, 3))
        except RuntimeError as error:
            raise KeyError("batch 3") from error
    assert dbg.diagnose().facts.exception_layer == "0"


def test_an_error_of_torchs_in_a_layer_names_the_layer():
    model = net()
    dbg = NeuralDbg(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), dbg:
        train(model, 5, broken_at=3)
    assert dbg.diagnose().facts.exception_layer == "0"


def test_a_bad_batch_that_the_user_skips_costs_no_count(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for step in range(6):
            x = torch.randn(4, 3 if step == 2 else 4)
            try:
                loss = model(x).square().mean()
            except RuntimeError:
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [r.step for r in records] == [0, 1, 2, 3, 4]
    assert [list(r.layers) for r in records] == [["0", "1", "2"]] * 5


# -- our own errors ---------------------------------------------------------------------------------------------------


class Faulty:
    """A detector that fails at one step."""

    name = "faulty"

    def __init__(self, at):
        self.at = at

    def initial(self, settings):
        return 0

    def step(self, state, record, facts):
        if state == self.at:
            raise ArithmeticError("a bug of ours")
        return state + 1, []


def faulty(dbg, at):
    detector = Faulty(at)
    dbg._trace.detectors.append(detector)
    dbg._trace.states.append(detector.initial(dbg.settings))


def errors(caplog):
    return [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("at", [0, 3, 18])
def test_an_error_of_ours_never_reaches_the_loop_and_is_told_once(at, told, monkeypatch, caplog):
    monkeypatch.delenv("NEURALDBG_STRICT")
    bare = train(net(), 24)
    model = net()
    with NeuralDbg(model) as dbg:
        faulty(dbg, at)
        watched = train(model, 24, dbg.record_loss if told else None)
        assert all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))
    assert len(errors(caplog)) == 1
    assert any("a bug of ours" in note for note in dbg.diagnose().facts.coverage.notes)
    assert hooks_of(model) == 0


@pytest.mark.parametrize("late", ["record_loss", "step"])
def test_an_error_of_ours_does_not_come_out_of_what_the_user_calls(late, monkeypatch, caplog):
    """The first steps wait until it is known how a step ends; the call that says so hands them on."""
    monkeypatch.delenv("NEURALDBG_STRICT")
    model = net()
    with NeuralDbg(model) as dbg:
        faulty(dbg, 0)
        train(model, 3)
        if late == "record_loss":
            dbg.record_loss(1.0)
        else:
            dbg.step = 3
        train(model, 3)
    assert len(errors(caplog)) == 1


def test_an_error_in_the_reasoning_does_not_hide_the_users_exception(monkeypatch, caplog):
    monkeypatch.delenv("NEURALDBG_STRICT")
    model = net()
    dbg = NeuralDbg(model)

    def broken(*args, **kwargs):
        raise ArithmeticError("a bug of ours")

    monkeypatch.setattr("neuraldbg.reasoning.diagnose", broken)
    with pytest.raises(KeyError, match="mine"), dbg:
        train(model, 3)
        raise KeyError("mine")
    assert hooks_of(model) == 0
    assert signals.sessions() == []
    assert len(errors(caplog)) == 1
    diagnosis = dbg.diagnose()
    assert diagnosis.facts.exception == "KeyError"
    assert any("a bug of ours" in note for note in diagnosis.facts.coverage.notes)


def test_under_test_an_error_of_ours_is_raised():
    model = net()
    dbg = NeuralDbg(model)
    with pytest.raises(ArithmeticError, match="a bug of ours"), dbg:
        faulty(dbg, 1)
        train(model, 24, dbg.record_loss)
    assert hooks_of(model) == 0
