"""Two trainings that are the same have no divergence; what differs is found where it began."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.diagnosis import Diagnosis, Verdict
from neuraldbg.diff import Divergence, diverge, load
from neuraldbg.events import Phase, observed
from neuraldbg.record import OptimizerFacts
from neuraldbg.testing import facts, module, parameter

LOSS = {k: 1.0 / (k + 1) for k in range(50)}


def told(loss=LOSS, gradient=None, events=(), steps=50, modules=(), **known):
    series = {"loss": tuple(loss.items()), "gradient_norm": tuple((gradient or dict.fromkeys(loss, 1.0)).items())}
    return Diagnosis(
        Verdict.HEALTHY, 0.02, events=tuple(events), facts=facts(*modules, **known), series=series, steps=steps
    )


def test_equal_trainings_have_no_divergence():
    found = diverge(told(), told())
    assert found.is_none and found == Divergence(50, apart={})


def test_a_longer_training_that_goes_on_the_same_has_none():
    longer = told({k: 1.0 / (k + 1) for k in range(90)}, steps=90, events=[observed("loss_spike", 70)])
    assert diverge(told(), longer).is_none


def test_steps_that_only_one_of_them_read_are_no_difference():
    assert diverge(told(), told({k: v for k, v in LOSS.items() if k % 10 == 0})).is_none


def test_a_distance_within_the_tolerance_is_none():
    near = told({k: v * (1 + 1e-7) for k, v in LOSS.items()})
    assert diverge(told(), near, tolerance=1e-6).is_none and not diverge(told(), near).is_none


def test_the_first_step_at_which_a_number_differs_and_how_far_it_went():
    far = told({k: v * (1 + 0.001 * max(0, k - 9)) for k, v in LOSS.items()})
    found = diverge(told(), far)
    assert found.first is not None and (found.first.what, found.first.step) == ("loss", 10)
    assert found.apart == {"0.01": 19}


def test_a_loss_that_stops_being_finite_differs_there():
    found = diverge(told(), told({k: v for k, v in LOSS.items() if k < 20}, gradient=dict.fromkeys(LOSS, 1.0)))
    assert found.first is not None
    assert (found.first.step, found.first.a, found.first.b) == (20, f"{1 / 21:.8g}", "not finite")


def test_of_one_step_the_earlier_phase_comes_first_and_gives_the_layer():
    other = told({**LOSS, **{k: 9.0 for k in range(30, 50)}}, events=[observed("nan_input", 30, "fc1")])
    found = diverge(told(), other)
    assert found.first is not None
    assert (found.first.step, found.first.layer, found.first.phase) == (30, "fc1", Phase.INPUT)
    assert (found.first.a, found.first.b) == ("-", "1x")


def test_other_first_weights_are_named_with_their_layer():
    a, b = (told(parameters=(parameter("fc1.weight", rms=0.1), parameter("fc2.weight", rms=r))) for r in (0.1, 0.2))
    found = diverge(a, b)
    assert found.first is not None and (found.first.layer, found.first.step, found.first.a) == ("fc2", 0, "0.1")


def test_what_the_trainings_are_made_of_is_compared():
    a = told(optimizers=(OptimizerFacts("SGD", (0.1,)),), modules=(module("act", activation="relu"),), loss_kind="mse")
    b = told(optimizers=(OptimizerFacts("Adam", (0.1,)),), modules=(module("act", activation="tanh"), module("new")))
    assert {(d.what, d.layer, d.a, d.b) for d in diverge(a, b).settings} == {
        ("module", "act", "Relu", "Tanh"),
        ("module", "new", "absent", "Linear"),
        ("kind", None, "SGD", "Adam"),
        ("loss_kind", None, "mse", "None"),
    }
    assert diverge(a, replace(a, facts=facts(optimizers=()))).settings[0].b == "absent"


@pytest.mark.parametrize("changed", [None, 25])
def test_two_real_trainings_part_where_the_batch_was_changed(tmp_path, changed):
    """The journals of one seed are equal to the bit; one number of one batch is found at its step."""
    for name, at in (("a", None), ("b", changed)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with NeuralDbg(model, journal_dir=tmp_path / name, cadence=1) as dbg:
            for step in range(40):
                inputs = torch.randn(16, 4)
                if step == at:
                    inputs[0, 0] += 1e-3
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        assert dbg.journal is not None
    a, b = (load(next((tmp_path / name).glob("*.jsonl"))) for name in "ab")
    found = diverge(a, b)
    assert found.settings == ()
    assert (found.first.step if found.first else None) == changed
    assert {d.step for d in found.series} <= {25, 26}
