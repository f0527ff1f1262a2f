"""Hooks are inert: copies, pickles, saved models and forked children never speak to the session."""

from __future__ import annotations

import copy
import io
import os
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from neuraldbg import NeuralDbg
from neuraldbg.watch import hooks
from neuraldbg.watch.hooks import Silent


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.act, self.head = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.act(self.body(x)))


def batch():
    return torch.randn(6, 4)


def train(model, steps=4, after=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        if after is not None:
            after()


def calls(session):
    """How often the session has been spoken to, as far as it can be seen from outside."""
    return session.clock.forwards, session.clock.backwards, session.count, len(session.forward.order)


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_silent_and_the_original_is_still_watched(how):
    model = Net()
    with NeuralDbg(model) as dbg:
        train(model, 2)
        twin = how(model)
        before = calls(dbg._session)
        if how is not copy.copy:  # a shallow copy shares its parts, and with them their hooks
            for _ in range(3):
                twin(batch()).square().mean().backward()
            assert calls(dbg._session) == before
        train(model, 2)
    assert dbg.diagnose().steps == 4
    assert torch.isfinite(twin(batch())).all()


def test_an_average_of_the_weights_is_kept_without_a_trace():
    model = Net()
    with NeuralDbg(model) as dbg:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

        def update():
            average.update_parameters(model)
            average(batch()).sum().backward()

        train(model, 5, update)
    assert dbg.diagnose().steps == 5
    names = {m.name for m in dbg.diagnose().facts.modules if m.order is not None}
    assert names == {"", "body", "act", "head"}


def test_a_whole_model_is_saved_and_loaded_inside_a_session():
    model, file = Net(), io.BytesIO()
    with NeuralDbg(model) as dbg:
        train(model, 2)
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        before = calls(dbg._session)
        loaded(batch()).sum().backward()
        assert calls(dbg._session) == before
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
    assert all(isinstance(h, Silent) for m in loaded.modules() for h in m._forward_hooks.values())


def test_only_weights_are_loaded_from_what_a_watched_model_saved():
    model, file = Net(), io.BytesIO()
    with NeuralDbg(model):
        train(model, 2)
        torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert list(state) == ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert Net().load_state_dict(state).missing_keys == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_write_into_the_parents_session(tmp_path):
    model = Net()
    with NeuralDbg(model, sinks=[]) as dbg:
        train(model, 2)
        before = calls(dbg._session)
        child = os.fork()
        if not child:
            try:
                train(model, 3)
                dbg.record_loss(1.0)
                same = calls(dbg._session) == before
                (tmp_path / "child").write_text("same" if same else f"{before} {calls(dbg._session)}")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert calls(dbg._session) == before
        train(model, 2)
    assert (tmp_path / "child").read_text() == "same"
    assert dbg.diagnose().steps == 4


def test_hooks_return_nothing_and_so_replace_nothing():
    model = Net()
    with NeuralDbg(model):
        hung = [h for m in model.modules() for h in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
        assert hung
        for hook in hung:
            args = (model.body, (batch(),), {}) if isinstance(hook, hooks.BeforeForward) else (model.body, (), batch())
            assert hook(*args) is None


def test_a_silent_hook_accepts_any_call():
    assert Silent()(1, two=2) is None
    assert hooks.silent()() is None


def test_a_hook_outlives_its_session_without_speaking():
    model = Net()
    dbg = NeuralDbg(model)
    dbg.__enter__()
    kept = [*model._forward_hooks.values(), *model._forward_pre_hooks.values()]
    dbg.detach()
    del dbg
    for hook in kept:
        model.register_forward_pre_hook(lambda m, a, hook=hook: hook(m, a, {}))
    assert torch.isfinite(model(batch())).all()


def test_hooks_of_the_users_stay_and_keep_their_order():
    model, told = Net(), []
    model.register_forward_hook(lambda m, a, o: told.append("first"))
    with NeuralDbg(model):
        model.register_forward_hook(lambda m, a, o: told.append("second"))
        train(model, 1)
    train(model, 1)
    assert told == ["first", "second"] * 2
    assert len(model._forward_hooks) == 2
