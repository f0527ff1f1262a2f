"""Every way of training: watched equals bare to the bit, steps are counted right, and nothing is left behind."""

from __future__ import annotations

import torch

from neuraldbg import NeuralDbg
from neuraldbg.watch import signals


def state(models, losses):
    weights = [v.clone() for m in models for v in m.state_dict().values()]
    return weights, losses, torch.get_rng_state()


def hooks(models):
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = [x for m in models for x in m.modules()]
    found = sum(len(getattr(x, n)) for x in modules for n in names)
    return found + sum(len(p._post_accumulate_grad_hooks or ()) for m in models for p in m.parameters())


def run(loop, watched, told):
    models, train = loop(3)
    losses = []
    if not watched:
        train(losses.append)
        return state(models, losses), None
    before = hooks(models)
    with NeuralDbg(*models) as dbg:
        train((lambda v: (losses.append(v), dbg.record_loss(v))) if told else losses.append)
    assert hooks(models) == before
    return state(models, losses), dbg


def test_watched_equals_bare_to_the_bit(loop):
    for told in (True, False):
        (weights, losses, rng), _ = run(loop, False, told)
        (watched_weights, watched_losses, watched_rng), _ = run(loop, True, told)
        assert losses == watched_losses
        assert torch.equal(rng, watched_rng)
        assert all(torch.equal(a, b) for a, b in zip(weights, watched_weights, strict=True))


def test_steps_are_counted_as_by_hand(loop, loops):
    for told in (True, False):
        _, dbg = run(loop, True, told)
        assert dbg.diagnose().steps == loops.STEPS, told


def test_a_healthy_loop_is_healthy(loop):
    _, dbg = run(loop, True, True)
    assert str(dbg.diagnose().verdict) == "healthy", dbg.diagnose()
    assert dbg.explain_failure() == []


def test_everything_that_ran_was_seen(loop):
    _, dbg = run(loop, True, True)
    coverage = dbg.diagnose().facts.coverage
    assert coverage.parameters_seen == coverage.parameters > 0
    leaves = [m for m in dbg.diagnose().facts.modules if m.parameters and m.kind != "NonDynamicallyQuantizableLinear"]
    fused = {m.name for m in leaves if m.name.endswith("out_proj")}  # read by a function, never called
    assert all(m.order is not None for m in leaves if m.name not in fused), leaves


def test_the_signals_are_put_back_when_the_last_session_ends(loop):
    backward, step = torch.autograd.backward, torch.amp.GradScaler.step
    run(loop, True, True)
    assert torch.autograd.backward is backward
    assert torch.amp.GradScaler.step is step
    assert signals.sessions() == []
