"""The public session: what it accepts, what it refuses and how, and that it never costs the user a training."""

from __future__ import annotations

import gc
import json
import math
import weakref

import numpy
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg, SemanticEvent, Settings, Verdict
from neuraldbg.report.json import from_json, to_json
from neuraldbg.watch import signals
from tests.watch.sessions import hooks_of, net, train

# -- what is watched --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["resnet18", None, 3, [net()], lambda x: x])
def test_what_is_no_module_is_refused_by_its_value(wrong):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module.*got .*pass the model itself, NeuralDbg\(model\)") as error:
        NeuralDbg(wrong)
    assert repr(wrong)[:12] in str(error.value)


def test_a_class_in_place_of_an_instance_is_refused():
    with pytest.raises(TypeError, match=r"got type .*Linear.*pass an instance"):
        NeuralDbg(nn.Linear)


def test_a_wrong_value_in_a_dict_of_models_is_refused():
    with pytest.raises(TypeError, match="got str 'x'"):
        NeuralDbg({"gen": net(), "disc": "x"})


def test_a_model_without_parameters_is_refused_by_its_class():
    with pytest.raises(ValueError, match=r"ReLU has no parameters.*pass the model that is trained"):
        NeuralDbg(nn.ReLU())


def test_the_same_model_given_twice_is_refused():
    model = net()
    with pytest.raises(ValueError, match="the same Sequential was given twice"):
        NeuralDbg(model, model)


@pytest.mark.parametrize(
    ("unknown", "known"), [({"dense_step": 5}, "dense_steps"), ({"treshold_vanishing": 1.0}, "threshold_vanishing")]
)
def test_an_unknown_setting_is_named_and_the_known_ones_are_listed(unknown, known):
    with pytest.raises(TypeError, match=f"unknown setting '{next(iter(unknown))}'; .*{known}"):
        NeuralDbg(net(), **unknown)


def test_a_setting_out_of_range_is_refused_by_name_and_value():
    with pytest.raises(ValueError, match="dense_steps") as error:
        NeuralDbg(net(), dense_steps=0)
    assert "0" in str(error.value)


def test_settings_that_are_no_settings_are_refused():
    with pytest.raises(TypeError, match=r"settings.*Settings.*got dict"):
        NeuralDbg(net(), settings={"dense_steps": 5})


def test_fields_given_by_name_win_over_the_settings_object():
    dbg = NeuralDbg(net(), settings=Settings(dense_steps=7, sparse_every=3), dense_steps=9)
    assert (dbg.settings.dense_steps, dbg.settings.sparse_every) == (9, 3)


def test_models_of_one_session_have_names_of_their_own():
    gen, disc = net(), net()
    with NeuralDbg({"gen": gen, "disc": disc}) as dbg:
        train(gen, 2)
        train(disc, 2)
    facts = dbg.diagnose().facts
    assert facts.models == ("gen", "disc")
    assert {p.name for p in facts.parameters} == {
        f"{m}.{k}.{p}" for m in ("gen", "disc") for k in (0, 2) for p in ("weight", "bias")
    }
    assert facts.module("gen.0") is not None and facts.module("disc") is not None


def test_two_models_of_one_class_are_numbered():
    with NeuralDbg(net(), net()) as dbg:
        pass
    assert dbg.diagnose().facts.models == ("sequential", "sequential2")


def test_one_model_has_the_names_of_its_own_modules():
    model = net()
    with NeuralDbg({"anything": model}) as dbg:
        train(model, 2)
    assert {m.name for m in dbg.diagnose().facts.modules} == {n for n, _ in model.named_modules()}


# -- entering and leaving ---------------------------------------------------------------------------------------------


def test_a_model_entered_twice_is_watched_by_the_newest_with_one_set_of_hooks():
    model = net()
    with NeuralDbg(model) as first:
        once = hooks_of(model)
        train(model, 3)
        second = NeuralDbg(model).__enter__()
        assert hooks_of(model) == once
        train(model, 2)
        second.detach()
    assert first.diagnose().steps == 3
    assert second.diagnose().steps == 2
    assert hooks_of(model) == 0


def test_a_used_session_is_not_entered_again():
    dbg = NeuralDbg(net())
    with dbg:
        pass
    with pytest.raises(RuntimeError, match=r"make a new NeuralDbg\(model\)"), dbg:
        pass


def test_detach_takes_all_off_and_may_be_called_again():
    model = net()
    dbg = NeuralDbg(model)
    dbg.detach()  # never entered: nothing to take off
    with dbg:
        train(model, 3)
        dbg.detach()
        assert hooks_of(model) == 0
        dbg.detach()
        train(model, 3)
    assert dbg.diagnose().steps == 3
    assert signals.sessions() == []


def test_the_model_is_not_kept_alive():
    model = net()
    gone = weakref.ref(model)
    with NeuralDbg(model) as dbg:
        assert dbg.model is model
        train(model, 3)
        del model
        gc.collect()
        assert gone() is None
        assert dbg.model is None
    assert dbg.diagnose().steps == 3


def test_a_finished_session_keeps_no_model_alive():
    model = net()
    gone = weakref.ref(model)
    with NeuralDbg(model) as dbg:
        train(model, 3)
    del model
    gc.collect()
    assert gone() is None
    assert str(dbg.diagnose().verdict) == "healthy"


def test_a_pause_leaves_the_model_bare_and_ends():
    model = net()
    with NeuralDbg(model) as dbg:
        before = hooks_of(model)
        train(model, 3)
        with dbg.paused():
            assert hooks_of(model) == 0
            torch.export.export(model, (torch.randn(2, 4),))
            train(model, 4)
        assert hooks_of(model) == before
        train(model, 2)
    assert dbg.diagnose().steps == 5


def test_a_pause_ends_after_an_exception_too():
    model = net()
    with NeuralDbg(model) as dbg:
        before = hooks_of(model)
        with pytest.raises(KeyError), dbg.paused():
            raise KeyError("x")
        assert hooks_of(model) == before


def test_a_pause_of_a_finished_session_hangs_no_hooks():
    model = net()
    with NeuralDbg(model) as dbg:
        pass
    with dbg.paused():
        pass
    assert hooks_of(model) == 0


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_session_that_is_off_does_nothing(how, monkeypatch):
    fields = {"enabled": False} if how == "argument" else {}
    if how == "environment":
        monkeypatch.setenv("NEURALDBG_ENABLED", "0")
    model = net()
    with NeuralDbg(model, **fields) as dbg:
        assert hooks_of(model) == 0
        assert signals.sessions() == []
        train(model, 3, dbg.record_loss)
        dbg.step = 7
    diagnosis = dbg.diagnose()
    assert diagnosis.steps == 0
    assert any("off" in note for note in diagnosis.facts.coverage.notes)
    assert dbg.explain_failure() == []


# -- the user's numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["0.5", b"1", None, [1.0, 2.0], {}, object()])
def test_a_loss_that_is_no_number_is_refused_by_its_value(wrong):
    with (
        NeuralDbg(net()) as dbg,
        pytest.raises(TypeError, match=r"record_loss takes a number, got .*loss\.item\(\)") as e,
    ):
        dbg.record_loss(wrong)
    assert type(wrong).__name__ in str(e.value)


def test_a_loss_of_several_numbers_is_refused_by_its_shape():
    with NeuralDbg(net()) as dbg, pytest.raises(TypeError, match=r"shape \(3, 2\); pass loss\.mean\(\)"):
        dbg.record_loss(torch.zeros(3, 2))


@pytest.mark.parametrize(
    "given",
    [0.5, torch.tensor(0.5), torch.tensor([[0.5]], requires_grad=True), numpy.float32(0.5), torch.tensor(0.5).half()],
)
def test_a_loss_may_be_any_single_number(given, recorded):
    dbg, records = recorded(net())
    with dbg:
        for _ in range(3):
            dbg.record_loss(given)
    assert [r.loss for r in records] == [0.5] * 3


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, torch.tensor(math.nan)])
def test_a_loss_that_is_not_finite_is_welcome_and_reported(given):
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, 12, lambda v: dbg.record_loss(v if dbg.step < 8 else given))
    seen = [e for e in dbg.events if e.symptom == "loss_nonfinite"]
    assert [e.step for e in seen] == [8]


@pytest.mark.parametrize("wrong", ["3", 2.5, None, True, [1]])
def test_a_step_that_is_no_whole_number_is_refused_by_its_value(wrong):
    with NeuralDbg(net()) as dbg, pytest.raises(TypeError, match="step is a whole number, got"):
        dbg.step = wrong


def test_steps_set_by_hand_are_the_steps_of_the_records(recorded):
    model = net()
    dbg, records = recorded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dbg:
        for step in (numpy.int64(10), 11, 20):
            dbg.step = step
            for _ in range(2):  # two updates, one step of the user's
                model(torch.randn(4, 4)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert dbg.step == step
    assert [r.step for r in records] == [10, 11, 20]


# -- answers ----------------------------------------------------------------------------------------------------------


def test_a_diagnosis_in_mid_run_says_running_and_changes_nothing():
    def run(ask):
        model = net()
        with NeuralDbg(model, cadence=1) as dbg:
            for _ in range(3):
                train(model, 4, dbg.record_loss)
                if ask:
                    assert str(dbg.diagnose().verdict) == "running"
                    assert dbg.diagnose().steps == dbg._session.count
        return json.loads(to_json(dbg.diagnose()))

    asked, unasked = run(True), run(False)
    for data in (asked, unasked):
        data["facts"]["coverage"].pop("share")
        data["facts"].pop("started")
    assert asked == unasked


def test_a_healthy_run_has_no_hypothesis_and_says_so_when_asked_for_one():
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, 30, dbg.record_loss)
    assert str(dbg.diagnose().verdict) == "healthy"
    assert dbg.explain_failure() == []
    with pytest.raises(IndexError, match="healthy"):
        dbg.explain_failure()[0]


def test_an_unknown_failure_type_is_refused_with_the_known_ones():
    dbg = NeuralDbg(net())
    with pytest.raises(ValueError, match="exploding_gradients"):
        dbg.explain_failure("exploding")


def test_events_appended_by_hand_are_reasoned_over():
    dbg = NeuralDbg(net())
    with dbg:
        pass
    assert dbg.explain_failure() == []
    dbg.events.append(SemanticEvent("optimizer_instability", None, 3, "stable", "spike", 0.9, {"decades": 3.0}))
    dbg.events.append(SemanticEvent("gradient_health_transition", "0", 4, "healthy", "exploding", 0.9))
    dbg.events.append(SemanticEvent("optimizer_instability", None, 6, "stable", "diverging", 0.9))
    diagnosis = dbg.diagnose()
    assert [e.step for e in diagnosis.events] == [3, 4, 6]
    assert diagnosis.couplings
    assert "graph TD" in dbg.export_mermaid_causal_graph()


@pytest.mark.parametrize(
    ("ending", "sign"),
    [
        ("json", '"schema_version"'),
        ("html", "<html"),
        ("md", "#"),
        ("svg", "<svg"),
        ("mmd", "graph TD"),
        ("txt", "healthy"),
    ],
)
def test_a_diagnosis_is_saved_in_each_form(ending, sign, tmp_path):
    model = net()
    with NeuralDbg(model) as dbg:
        train(model, 30, dbg.record_loss)
    path = dbg.save(tmp_path / "deep" / f"diagnosis.{ending}")
    text = path.read_text(encoding="utf-8")
    assert sign.lower() in text.lower()
    if ending == "json":
        assert from_json(text) == dbg.diagnose()


def test_an_unknown_form_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"diagnosis\.pdf.*\.json"):
        NeuralDbg(net()).save(tmp_path / "diagnosis.pdf")


def test_a_session_that_saw_nothing_is_not_healthy_and_one_that_saw_a_step_is():
    model, other = net(), net()
    with NeuralDbg(model) as dbg:
        train(model, 3)
    assert dbg.diagnose().verdict is Verdict.HEALTHY and not dbg.diagnose().saw_nothing
    with NeuralDbg(model) as dbg:
        train(other, 3)
    found = dbg.diagnose()
    assert found.saw_nothing and found.verdict is Verdict.WARNING and found.failure_probability == 0.5
    with pytest.raises(IndexError, match="nothing was seen of a training"):
        dbg.explain_failure()[0]
    assert NeuralDbg(model).diagnose().saw_nothing
    with NeuralDbg(model) as dbg:
        assert dbg.diagnose().verdict is Verdict.RUNNING
