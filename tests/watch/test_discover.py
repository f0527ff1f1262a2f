"""Which model an automatic session watches, and when the session ends; a list stands in for a tracker's active runs."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.optim import SGD, Optimizer

from neuraldbg import NeuralDbg, sinks
from neuraldbg.diagnosis import Diagnosis
from neuraldbg.sinks import Memory
from neuraldbg.watch import discover
from neuraldbg.watch.owners import owners

STEPS = 5


class Tracker:
    """The active runs of one thread, innermost first, and a sink for each session."""

    def __init__(self) -> None:
        self.active: list[str] = []
        self.sinks: list[Memory] = []

    def probe(self) -> tuple[str, ...]:
        return tuple(self.active)

    def sink(self) -> Memory:
        self.sinks.append(Memory())
        return self.sinks[-1]

    def start(self, name: str) -> None:
        self.active.insert(0, name)
        discover.run_started()

    def end(self) -> None:
        discover.run_ending(self.active[0])
        self.active.pop(0)

    @property
    def told(self) -> list[Diagnosis]:
        """Diagnoses of sessions that have ended and seen a step."""
        return [s.diagnosis for s in self.sinks if s.diagnosis is not None and s.diagnosis.steps]


def nothing() -> None:
    """No listener is needed."""


@pytest.fixture(name="tracker")
def _tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    monkeypatch.setenv("NEURALDBG_STRICT", "1")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.collect()
    tracker = Tracker()
    sinks.add_factory(tracker.sink)
    discover.enable(tracker.probe, nothing)
    if discover._known:  # optimizers of other tests that something keeps alive are not this test's
        discover.finish_all()
        discover._known.clear()
        tracker.sinks.clear()
    yield tracker
    discover.disable(tracker.probe, nothing)
    sinks.remove_factory(tracker.sink)


def net(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, width))


def train(model: nn.Module, optimizer: Optimizer, steps: int = STEPS) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()


def watched() -> list[str]:
    """Classes of the models that automatic sessions watch now."""
    return sorted(
        type(model).__name__
        for session in list(NeuralDbg.active)
        for _, ref in session._session.models
        if (model := ref())
    )


def parameters_of(diagnosis: Diagnosis) -> set[str]:
    return {p.name for p in diagnosis.facts.parameters}


def hooks_of(model: nn.Module) -> int:
    parts = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return parts + sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())


# -- nothing to watch -------------------------------------------------------------------------------------------------


def test_without_autolog_an_optimizer_starts_nothing() -> None:
    before = Optimizer.__init__
    model = net()
    train(model, SGD(model.parameters(), 0.1))
    assert len(NeuralDbg.active) == 0
    assert hooks_of(model) == 0
    assert Optimizer.__init__ is before


def test_an_optimizer_over_loose_tensors_starts_nothing(tracker: Tracker) -> None:
    weight = torch.zeros(3, requires_grad=True)
    optimizer = SGD([weight], 0.1)
    weight.sum().backward()
    optimizer.step()
    assert tracker.sinks == []


def test_a_model_that_never_trains_gives_no_diagnosis(tracker: Tracker) -> None:
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    with torch.no_grad():
        model(torch.randn(6, 4))
    discover.finish_all()
    assert tracker.told == []
    assert hooks_of(model) == 0
    assert optimizer.param_groups


def test_a_model_the_user_watches_is_left_to_the_user(tracker: Tracker) -> None:
    model = net()
    with NeuralDbg(model) as mine:
        train(model, SGD(model.parameters(), 0.1))
        assert list(NeuralDbg.active) == [mine]
    assert len(tracker.told) == 1


def test_a_session_of_the_users_that_starts_later_takes_the_model_over(tracker: Tracker) -> None:
    tracker.start("a")
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    with NeuralDbg(model) as mine:
        train(model, optimizer)
        assert list(NeuralDbg.active) == [mine]
    train(model, optimizer)  # left unwatched by choice
    tracker.end()
    assert len(tracker.told) == 1
    assert tracker.told[0].steps == STEPS


# -- which model ------------------------------------------------------------------------------------------------------


def test_a_plain_loop_is_watched_from_step_0_and_the_training_is_the_same(tracker: Tracker) -> None:
    def weights() -> list[Tensor]:
        torch.manual_seed(3)
        model = net()
        train(model, SGD(model.parameters(), 0.1))
        return [p.detach() for p in model.parameters()]

    seen = weights()
    discover.finish_all()
    (diagnosis,) = tracker.told
    assert diagnosis.steps == STEPS
    assert parameters_of(diagnosis) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    discover.disable(tracker.probe, nothing)
    assert all(torch.equal(a, b) for a, b in zip(seen, weights(), strict=True))


def test_an_optimizer_that_exists_before_autolog_counts(tracker: Tracker) -> None:
    discover.disable(tracker.probe, nothing)
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    discover.enable(tracker.probe, nothing)
    train(model, optimizer)
    discover.finish_all()
    assert [d.steps for d in tracker.told] == [STEPS]


def test_a_frozen_teacher_and_a_loss_module_are_not_watched(tracker: Tracker) -> None:
    class Distance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))  # nobody trains it

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.scale * (a - b).square().mean()

    teacher, student, distance = nn.Linear(4, 4), net(), Distance()
    optimizer = SGD(student.parameters(), 0.1)
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        optimizer.zero_grad()
        distance(student(x), teacher(x)).backward()
        optimizer.step()
    assert watched() == ["Sequential"]
    assert hooks_of(teacher) == hooks_of(distance) == 0
    discover.finish_all()
    assert parameters_of(tracker.told[0]) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_an_ema_copy_is_not_watched_and_carries_no_live_hook(tracker: Tracker) -> None:
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    averaged = copy.deepcopy(model)
    for _ in range(STEPS):
        train(model, optimizer, 1)
        with torch.no_grad():
            for mine, theirs in zip(averaged.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
            averaged(torch.randn(6, 4))
    averaged(torch.randn(6, 4)).sum().backward()
    discover.finish_all()
    (diagnosis,) = tracker.told
    assert diagnosis.steps == STEPS
    assert len(diagnosis.facts.models) == 1


def test_a_head_that_is_tuned_alone_shows_the_whole_model(tracker: Tracker) -> None:
    model = net()
    train(model, SGD(model[2].parameters(), 0.1))
    discover.finish_all()
    assert "0.weight" in parameters_of(tracker.told[0])


def test_encoder_and_decoder_called_apart_are_one_session(tracker: Tracker) -> None:
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
    optimizer = SGD([*encoder.parameters(), *decoder.parameters()], 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        decoder(encoder(torch.randn(6, 4))).square().mean().backward()
        optimizer.step()
    discover.finish_all()
    (diagnosis,) = tracker.told
    assert diagnosis.steps == STEPS
    assert len(diagnosis.facts.models) == 2


@pytest.mark.parametrize("critic_steps", [1, 3])
def test_the_two_networks_of_a_gan_are_one_session(tracker: Tracker, critic_steps: int) -> None:
    generator, critic = net(), nn.Linear(4, 1)
    first, second = SGD(generator.parameters(), 0.01), SGD(critic.parameters(), 0.01)
    for _ in range(STEPS):
        for _ in range(critic_steps):
            second.zero_grad()
            (critic(generator(torch.randn(6, 4)).detach()).mean() - critic(torch.randn(6, 4)).mean()).backward()
            second.step()
        first.zero_grad()
        (-critic(generator(torch.randn(6, 4))).mean()).backward()
        first.step()
    discover.finish_all()
    (diagnosis,) = tracker.told
    assert len(diagnosis.facts.models) == 2


def test_a_second_network_that_is_made_late_does_not_end_the_session(tracker: Tracker) -> None:
    tracker.start("a")
    one, two = net(), net()
    first = SGD(one.parameters(), 0.1)
    train(one, first)
    second = SGD(two.parameters(), 0.1)
    for _ in range(STEPS):
        train(two, second, 1)
        train(one, first, 1)
    tracker.end()
    assert [d.steps for d in tracker.told if d.steps > 1] == [2 * STEPS]


@pytest.mark.parametrize("when", ["before", "after", "in place"])
def test_a_compiled_model_is_looked_through_without_a_warning_or_a_recompilation(tracker: Tracker, when: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = net()
    called: Any = model
    if when == "before":
        called = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = SGD(called.parameters(), 0.1)
    if when == "after":
        called = torch.compile(model, backend="eager", fullgraph=True)
    if when == "in place":
        model.compile(backend="eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*global hooks")
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor")  # torch, of its own tracing
        train(called, optimizer)
    # Compiled in place, torch traces the hooks of the root in a graph of their own.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (2 if when == "in place" else 1)
    assert not torch._dynamo.utils.counters["graph_break"]
    discover.finish_all()
    (diagnosis,) = tracker.told
    assert parameters_of(diagnosis) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert diagnosis.facts.coverage.parameters_seen == 4
    assert diagnosis.steps == STEPS


def test_the_model_below_a_wrapper_is_named_by_its_root(tracker: Tracker) -> None:
    class Lightning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

    module = Lightning()
    assert owners(SGD(module.inner.parameters(), 0.1)) == [module]
    wrapped = torch.compile(module, backend="eager")
    assert owners(SGD(module.inner.parameters(), 0.1)) == [wrapped]


# -- when it ends -----------------------------------------------------------------------------------------------------


def test_no_hook_on_all_modules_is_ever_set(tracker: Tracker) -> None:
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    assert not torch_module._has_any_global_hook()
    train(model, optimizer)
    assert not torch_module._has_any_global_hook()
    assert hooks_of(model) > 0
    discover.finish_all()
    assert hooks_of(model) == 0


def test_turning_it_off_leaves_torch_as_it_was() -> None:
    from torch.optim import optimizer as torch_optimizer

    before = (Optimizer.__init__, len(torch_optimizer._global_optimizer_post_hooks))
    tracker = Tracker()
    discover.enable(tracker.probe, nothing)
    discover.enable(tracker.probe, nothing)
    model = net()
    train(model, SGD(model.parameters(), 0.1))
    discover.disable(tracker.probe, nothing)
    assert (Optimizer.__init__, len(torch_optimizer._global_optimizer_post_hooks)) == before
    assert len(NeuralDbg.active) == 0
    assert hooks_of(model) == 0


def test_one_model_trained_in_two_runs_gives_two_diagnoses(tracker: Tracker) -> None:
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    for name in ("a", "b"):
        tracker.start(name)
        train(model, optimizer)
        tracker.end()
    assert [d.steps for d in tracker.told] == [STEPS, STEPS]


def test_so_it_does_where_nobody_says_that_runs_start_and_end(tracker: Tracker) -> None:
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    for name in ("a", "b"):
        tracker.active[:] = [name]
        train(model, optimizer)
    discover.finish_all()
    assert [d.steps for d in tracker.told] == [STEPS, STEPS]


def test_a_session_whose_run_is_no_longer_active_ends_at_the_next_forward(tracker: Tracker) -> None:
    tracker.active[:] = ["a"]
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    train(model, optimizer)
    tracker.active.clear()
    assert len(tracker.told) == 0
    model(torch.randn(6, 4))
    assert [d.steps for d in tracker.told] == [STEPS]
    assert hooks_of(model) == 0
    assert optimizer.param_groups


def test_evaluation_between_epochs_ends_nothing(tracker: Tracker) -> None:
    tracker.start("a")
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(3):
        train(model, optimizer, 2)
        model.eval()
        with torch.no_grad():
            model(torch.randn(6, 4))
        model.train()
    tracker.end()
    assert [d.steps for d in tracker.told] == [6]


def test_a_nested_run_inside_the_tracked_one_ends_nothing(tracker: Tracker) -> None:
    tracker.start("outer")
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    train(model, optimizer)
    tracker.start("inner")
    train(model, optimizer)
    tracker.end()
    train(model, optimizer)
    tracker.end()
    assert [d.steps for d in tracker.told] == [3 * STEPS]


def test_another_model_in_a_nested_run_ends_the_session(tracker: Tracker) -> None:
    tracker.start("outer")
    one = net()
    first = SGD(one.parameters(), 0.1)
    train(one, first)
    tracker.start("inner")
    two = net()
    train(two, SGD(two.parameters(), 0.1), 3)
    tracker.end()
    tracker.end()
    assert [d.steps for d in tracker.told] == [STEPS, 3]
    assert first.param_groups


def test_six_models_in_six_runs_give_six_diagnoses(tracker: Tracker) -> None:
    for k in range(6):
        tracker.start(f"run{k}")
        model = net()
        train(model, SGD(model.parameters(), 0.1), 2 + k)
        tracker.end()
    assert [d.steps for d in tracker.told] == [2, 3, 4, 5, 6, 7]
    assert all(len(d.facts.models) == 1 for d in tracker.told)


def test_six_models_built_before_their_runs_give_one_diagnosis_each(tracker: Tracker) -> None:
    models = [net() for _ in range(6)]
    pairs = [(m, SGD(m.parameters(), 0.1)) for m in models]
    for k, (model, optimizer) in enumerate(pairs):
        tracker.start(f"run{k}")
        train(model, optimizer, 2 + k)
        tracker.end()
    assert [d.steps for d in tracker.told] == [2, 3, 4, 5, 6, 7]
    assert all(hooks_of(m) == 0 for m in models)


def test_models_trained_one_after_the_other_without_any_run_are_told_apart(tracker: Tracker) -> None:
    kept = []
    for k in range(3):
        model = net()
        optimizer = SGD(model.parameters(), 0.1)
        train(model, optimizer, 3 + k)
        kept.append((model, optimizer))
    discover.finish_all()
    assert [d.steps for d in tracker.told] == [3, 4, 5]


def test_folds_trained_one_after_the_other_in_one_run_are_told_apart(tracker: Tracker) -> None:
    tracker.start("folds")
    kept = []
    for k in range(3):
        model = net()
        optimizer = SGD(model.parameters(), 0.1)
        train(model, optimizer, 4 + k)
        kept.append((model, optimizer))
    tracker.end()
    assert [d.steps for d in tracker.told] == [4, 5, 6]


def test_an_exception_that_ends_the_run_is_told(tracker: Tracker) -> None:
    tracker.start("a")
    model = net()
    optimizer = SGD(model.parameters(), 0.1)
    train(model, optimizer)
    error = ValueError("bad batch")
    discover.run_ending("a", (ValueError, error, None))
    assert tracker.told[0].facts.exception is not None
    assert "ValueError" in tracker.told[0].facts.exception
    assert optimizer.param_groups


def test_trainings_in_two_threads_have_a_session_each(tracker: Tracker) -> None:
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def one(steps: int) -> None:
        try:
            model = net()
            optimizer = SGD(model.parameters(), 0.1)
            barrier.wait(10)
            train(model, optimizer, steps)
            barrier.wait(10)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(steps,)) for steps in (4, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    discover.finish_all()
    assert failures == []
    assert sorted(d.steps for d in tracker.told) == [4, 7]
