"""The replay names the operator behind the first non-finite value, and the training does not notice it."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Part(nn.Module):
    """A module without parameters whose forward is one of the functions below."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def line_of(function, mark="#!"):
    """(file, number) of the line in a function's source that carries the mark."""
    lines, start = inspect.getsourcelines(function)
    return HERE, start + next(k for k, line in enumerate(lines) if mark in line)


def logarithm(x):
    return torch.log(x * 0)  #!


def exponential(x):
    return x + torch.exp(1000 + x)  #!


def quotient(x):
    empty = x * 0
    return empty / empty.sum(1, keepdim=True)  #!


def unit_length(x):
    x = x * 0
    return x / x.norm(dim=1, keepdim=True)  #!


def masked(x):
    hidden = torch.zeros_like(x).masked_fill(torch.ones_like(x, dtype=torch.bool), -math.inf)
    return torch.softmax(x + hidden, dim=1)  #!


def constant_norm(x):
    return F.batch_norm(x * 0, None, None, training=True, eps=1e-300)  #!


def small_power(x):
    return (x * 0).abs().pow(-0.5)  #!


def angle(x):
    return torch.acos(1.5 + x * 0)  #!


def nothing_left(x):
    return x + x[:0].mean()  #!


def in_place(x):
    y = x * 0
    y.log_()  #!
    return y


def infinity_by_hand(x):
    return x * 0 * -math.inf  #!


FORWARD = [
    (logarithm, "log", "zero_argument", "numerical_op_forward"),
    (exponential, "exp", "overflow", "numerical_op_forward"),
    (quotient, "div", "zero_divisor", "division_by_zero"),
    (unit_length, "div", "zero_divisor", "division_by_zero"),
    (masked, "softmax", "masked_row", "attention_mask_all_inf"),
    (constant_norm, "batch_norm", "zero_divisor", "division_by_zero"),
    (small_power, "pow", "zero_divisor", "division_by_zero"),
    (angle, "acos", "outside_domain", "numerical_op_forward"),
    (nothing_left, "mean", "empty", "division_by_zero"),
    (in_place, "log", "zero_argument", "numerical_op_forward"),
]


def root(x):
    return torch.sqrt((x * 0).pow(2).sum(1, keepdim=True))  #!


def untaken_branch(x):
    y = (x * 0).abs()
    return torch.where(y > 0, y.sqrt(), y)  #!


def edge_of_acos(x):
    return torch.acos(1 + x * 0)  #!


def root_by_power(x):
    return (x * 0).abs() ** 0.5  #!


BACKWARD = [(root, "sqrt"), (untaken_branch, "sqrt"), (edge_of_acos, "acos"), (root_by_power, "pow")]


class Straight(torch.autograd.Function):
    """Its derivative is taken of a value that it has clamped to zero."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 0)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.log(x)  #!


class Squashed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.log(x * 0)  #!

    @staticmethod
    def backward(ctx, grad):
        return grad


def model(function, *before):
    return nn.Sequential(nn.Linear(3, 3), *before, Part(function))


def train(net, loss=lambda out: out.mean(), steps=2, lr=0.1, x=None, **settings):
    """Two steps, watched; gives (diagnosis, first event that names an operator or None)."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    batch = torch.rand(4, 3) if x is None else x
    with NeuralDbg(net, **settings) as dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(net(batch)).backward()
            optimizer.step()
    diagnosis = dbg.diagnose()
    return diagnosis, next((e for e in diagnosis.events if e.metadata.get("operator")), None)


def said(diagnosis):
    return " ".join(diagnosis.facts.coverage.notes)


# --- what it names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "operator", "detail", "cause"), FORWARD, ids=lambda v: getattr(v, "__name__", v))
def test_the_forward_operator_is_named_with_module_file_and_line(function, operator, detail, cause):
    diagnosis, event = train(model(function))
    assert (event.layer_name, event.step) == ("1", 0)
    assert (event.metadata["operator"], event.metadata["detail"]) == (operator, detail)
    assert (event.metadata["file"], event.metadata["line"]) == line_of(function)
    first = diagnosis.hypotheses[0]
    assert (first.cause, first.layer_name) == (cause, "1")
    assert f"{operator} at {HERE}:{line_of(function)[1]}" in str(first)


@pytest.mark.parametrize(("function", "operator"), BACKWARD, ids=lambda v: getattr(v, "__name__", v))
def test_the_operator_of_the_derivative_is_named_with_module_file_and_line(function, operator):
    diagnosis, event = train(model(function))
    assert (event.symptom, event.layer_name, event.step) == ("nonfinite_gradient", "1", 0)
    assert (event.metadata["operator"], event.metadata["place"]) == (operator, "model")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(function)
    first = diagnosis.hypotheses[0]
    assert (first.cause, first.layer_name) == ("numerical_op_backward", "1")
    assert f"{operator} at {HERE}:{line_of(function)[1]}" in str(first)


def test_the_operator_inside_the_backward_of_an_own_function_is_named():
    _, event = train(model(Straight.apply))
    assert (event.symptom, event.layer_name, event.metadata["operator"]) == ("nonfinite_gradient", "1", "log")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(Straight.backward)


def test_the_operator_inside_the_forward_of_an_own_function_is_named():
    _, event = train(model(Squashed.apply))
    assert (event.symptom, event.layer_name, event.metadata["operator"]) == ("nonfinite_activation", "1", "log")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(Squashed.forward)


def test_an_overflow_of_float16_is_named():
    def huge(x):
        return (x + 300) * 300  #!

    net = model(huge).half()
    _, event = train(net, x=torch.rand(4, 3).half())
    assert (event.layer_name, event.metadata["operator"]) == ("1", "mul")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(huge)


def test_an_infinity_written_by_hand_is_a_mask_until_it_makes_nan():
    def padded(x):
        return torch.softmax(x.masked_fill(x > x.mean(), -math.inf), dim=1)

    diagnosis, event = train(model(padded, Part(lambda x: x)))
    assert event is None
    assert diagnosis.facts.coverage.notes == ()
    _, event = train(model(infinity_by_hand))
    assert (event.metadata["operator"], event.metadata["line"]) == ("mul", line_of(infinity_by_hand)[1])


def test_a_mask_beside_the_operator_is_not_blamed():
    def both(x):
        weights = torch.softmax(x.masked_fill(x > x.mean(), -math.inf), dim=1)
        return weights + torch.log(x * 0)  #!

    _, event = train(model(both))
    assert (event.metadata["operator"], event.metadata["line"]) == ("log", line_of(both)[1])


def test_of_two_bad_operators_the_one_that_ran_first_is_named():
    net = nn.Sequential(nn.Linear(3, 3), Part(angle), Part(quotient))
    _, event = train(net)
    assert (event.layer_name, event.metadata["operator"]) == ("1", "acos")


def test_a_module_of_torch_is_named_with_the_line_that_calls_the_model():
    net = nn.Sequential(nn.Linear(3, 3), Part(lambda x: x.masked_fill(x == x, -math.inf)), nn.Softmax(1))
    _, event = train(net)
    assert (event.layer_name, event.metadata["operator"]) == ("2", "softmax")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(train, "loss(net(batch))")


def test_on_a_step_of_which_only_the_loss_is_read_the_operator_is_named_too():
    for function, operator in [(logarithm, "log"), (root, "sqrt")]:
        switch = {"on": False}

        def later(x, function=function, switch=switch):
            return function(x) if switch["on"] else x

        net = model(later)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with NeuralDbg(net, dense_steps=1, overhead_budget=1e-9) as dbg:
            for step in range(6):
                switch["on"] = step == 4
                optimizer.zero_grad()
                net(torch.rand(4, 3)).mean().backward()
                optimizer.step()
        coverage = dbg.diagnose().facts.coverage
        assert coverage.steps_sampled < coverage.steps == 6
        event = next(e for e in dbg.diagnose().events if e.metadata.get("operator"))
        assert (event.layer_name, event.step, event.metadata["operator"]) == ("1", 4, operator)


LOSSES = [
    (lambda out: torch.log(out * 0).mean(), "log", "numerical_op_forward"),
    (lambda out: torch.exp(out + 1000).mean(), "exp", "numerical_op_forward"),
    (lambda out: (out / (out * 0)).mean(), "div", "division_by_zero"),
    (lambda out: out[:0].mean(), "mean", "division_by_zero"),
    (lambda out: F.cross_entropy(out, torch.full((4,), -100)), "nll_loss", "division_by_zero"),
    (lambda out: torch.acos(out * 0 + 2).mean(), "acos", "numerical_op_forward"),
]


@pytest.mark.parametrize(("loss", "operator", "cause"), LOSSES, ids=lambda v: v if isinstance(v, str) else "")
def test_an_operator_of_the_loss_is_named_with_the_line_that_starts_backward(loss, operator, cause):
    diagnosis, event = train(nn.Sequential(nn.Linear(3, 3)), loss)
    assert (event.symptom, event.layer_name, event.step) == ("loss_nonfinite", None, 0)
    assert (event.metadata["operator"], event.metadata["place"]) == (operator, "loss")
    assert (event.metadata["file"], event.metadata["line"]) == line_of(train, "loss(net(batch))")
    assert diagnosis.hypotheses[0].cause == cause
    assert f"{operator} in the loss" in str(diagnosis.hypotheses[0])


def test_a_derivative_of_the_loss_is_named():
    diagnosis, event = train(nn.Sequential(nn.Linear(3, 3)), lambda out: torch.sqrt((out * 0).pow(2).sum()))
    assert (event.symptom, event.layer_name) == ("nonfinite_gradient", None)
    assert (event.metadata["operator"], event.metadata["place"]) == ("sqrt", "loss")
    assert diagnosis.hypotheses[0].cause == "numerical_op_backward"


def test_a_loss_that_is_never_sent_backward_is_looked_at_when_its_step_ends():
    net = model(logarithm)
    with NeuralDbg(net) as dbg:
        dbg.record_loss(net(torch.rand(4, 3)).mean().item())
    event = next(e for e in dbg.diagnose().events if e.metadata.get("operator"))
    assert (event.layer_name, event.metadata["operator"]) == ("1", "log")


def test_a_compiled_model_is_replayed_as_it_was_written():
    net = model(logarithm, nn.Dropout(0.1))
    compiled = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(compiled) as dbg:
        for _ in range(2):
            optimizer.zero_grad()
            compiled(torch.rand(4, 3)).mean().backward()
            optimizer.step()
    event = next(e for e in dbg.diagnose().events if e.metadata.get("operator"))
    assert (event.layer_name, event.metadata["operator"], event.metadata["line"]) == ("2", "log", line_of(logarithm)[1])


# --- what it leaves alone -----------------------------------------------------------------------------------


def test_a_finite_training_is_never_replayed(monkeypatch):
    from neuraldbg.watch.replay import Replay

    started = []
    monkeypatch.setattr(Replay, "_run", lambda self, trigger: started.append(trigger))
    train(model(torch.tanh), steps=5)
    assert started == []
    train(model(logarithm), steps=1)
    assert started == ["loss"]


def test_the_model_runs_once_more_and_never_again():
    calls = []
    net = model(lambda x: (calls.append(1), logarithm(x))[1])
    train(net, steps=5)
    assert len(calls) == 5 + 1


def test_an_overflow_that_the_scaler_handles_starts_none():
    calls, skipped = [], 0
    net = nn.Sequential(nn.Linear(3, 3), Part(lambda x: (calls.append(1), x)[1]))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net) as dbg:
        for _ in range(4):
            optimizer.zero_grad()
            out = net(torch.rand(4, 3) + 1e4)
            scaler.scale((out - out.detach()).mean() + 1e-3).backward()
            skipped += not all(p.grad.isfinite().all() for p in net.parameters())
            scaler.step(optimizer)
            scaler.update()
    assert len(calls) == 4
    assert skipped
    assert dbg.diagnose().facts.coverage.notes == ()
    train(model(lambda x: (calls.append(1), logarithm(x))[1]), steps=1)
    assert len(calls) == 4 + 2


def test_only_the_open_step_is_referred_to():
    net = model(torch.tanh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net) as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(20):  # micro-batches: those whose gradients are there and whose output is gone are let go
                net(torch.rand(4, 3)).mean().backward()
            assert len(dbg._session.replay.calls) == 0
            optimizer.step()
    assert len(dbg._session.replay.calls) == 0


# --- where it is declined -----------------------------------------------------------------------------------


def unknown(diagnosis, event, why):
    assert event is None or event.metadata.get("operator") is None
    assert f"declined, {why}" in said(diagnosis), said(diagnosis)


def test_turned_off_it_does_nothing():
    diagnosis, event = train(model(quotient), replay=False)
    assert event is None and "not made, it was switched off (replay=False)" in said(diagnosis)
    assert diagnosis.hypotheses[0].layer_name == "1"


def test_inside_a_process_group_it_is_declined(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        unknown(*train(model(logarithm)), "a process group is open")
    finally:
        torch.distributed.destroy_process_group()


def test_a_hook_of_the_users_own_is_not_called_a_second_time():
    net, calls = model(logarithm), []
    net[0].register_forward_hook(lambda module, args, out: calls.append(1))
    unknown(*train(net), "a hook hangs on module '0'")
    assert len(calls) == 2


def test_a_forward_that_changes_buffers_of_its_own_is_not_repeated():
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("queue", torch.zeros(3))

        def forward(self, x):
            self.queue += x.detach().mean(0)
            return torch.log(x * 0)

    unknown(*train(nn.Sequential(nn.Linear(3, 3), Queue())), "the forward changes buffers of its own")


def test_a_forward_that_writes_into_its_parameters_is_not_repeated():
    net = nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), Part(logarithm))
    unknown(*train(net, x=torch.arange(4)), "the forward writes into tensors that outlive it")


def test_a_batch_changed_in_place_since_is_not_replayed():
    def loss(out):
        batch.add_(1)
        return out.mean()

    batch = torch.rand(4, 3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3), Part(logarithm))
    unknown(*train(net, loss, x=batch), "the batch was changed in place since")


def test_weights_that_moved_between_forward_and_backward_are_not_replayed():
    net = model(logarithm)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net) as dbg:
        net[0](torch.rand(4, 3)).mean().backward()
        out = net(torch.rand(4, 3))
        optimizer.step()
        out.mean().backward()
    unknown(dbg.diagnose(), None, "the weights have moved on")


def test_a_replay_that_takes_too_long_is_ended():
    unknown(*train(model(logarithm), replay_seconds=1e-9), "it took longer than replay_seconds")


def test_an_error_inside_the_replay_never_reaches_the_loop():
    calls = []

    def once(x):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("only once")
        return logarithm(x)

    diagnosis, event = train(model(once), steps=3)
    assert len(calls) == 4
    assert event is None
    assert "ended by RuntimeError: only once" in said(diagnosis)


def test_weights_that_were_not_finite_before_are_said():
    net = nn.Sequential(nn.Linear(3, 3))
    with torch.no_grad():
        net[0].weight[0, 0] = math.nan
    diagnosis, event = train(net)
    assert event is None
    assert "the weights were not finite before this step" in said(diagnosis)


def test_a_batch_that_is_not_finite_is_no_operators_doing():
    diagnosis, event = train(model(torch.tanh), x=torch.tensor([[math.nan, 0, 0]] * 4))
    assert event is None
    assert diagnosis.hypotheses[0].cause == "nan_in_input"


@pytest.mark.parametrize(("value", "cause"), [(math.nan, "nan_in_input"), (math.inf, "inf_in_input")])
def test_a_bad_batch_is_named_also_where_its_step_was_not_sampled(value, cause):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LeakyReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with NeuralDbg(net, dense_steps=3, sparse_every=1000) as dbg:
        for step in range(20):
            x = torch.randn(8, 3)
            x[2, 1] = value if step == 11 else x[2, 1]
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
    top = dbg.explain_failure()[0]
    assert (top.cause, top.step) == (cause, 11)


def test_where_a_look_would_wait_for_the_device_it_is_not_made(monkeypatch):
    for part in ("host", "replay"):
        monkeypatch.setattr(f"neuraldbg.watch.{part}.HOST", "elsewhere")
    diagnosis, event = train(model(quotient))
    assert event is None
    assert "not made, the model is on cpu and a look at each step would wait for it" in said(diagnosis)
    assert diagnosis.hypotheses[0].cause == "division_by_zero"
