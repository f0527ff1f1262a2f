"""Models that train in turn, each with an optimizer of its own: one step is one turn of all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from neuraldbg import NeuralDbg, sinks
from neuraldbg.diagnosis import Diagnosis
from neuraldbg.sinks import Memory
from neuraldbg.watch import discover

STEPS, BAD = 12, 7
Pair = tuple[nn.Module, Optimizer]


@pytest.fixture(name="told")
def _told() -> Iterator[list[Memory]]:
    """A sink for each session that starts by itself, in one tracked run."""
    made: list[Memory] = []

    def sink() -> Memory:
        made.append(Memory())
        return made[-1]

    def run() -> tuple[str, ...]:
        return ("run",)

    def nothing() -> None:
        return None

    sinks.add_factory(sink)
    discover.enable(run, nothing)
    discover.finish_all()
    discover._known.clear()
    made.clear()
    yield made
    discover.disable(run, nothing)
    sinks.remove_factory(sink)


def pair() -> Pair:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, SGD(model.parameters(), 0.05)


def turn(model: nn.Module, optimizer: Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    (model(x) - 1).square().mean().backward()
    optimizer.step()


def train(pairs: Sequence[Pair], bad: int | None = None, of: int = 0) -> None:
    """Each model's forward, backward and step before the next one's; one of them meets NaN at step `bad`."""
    for step in range(STEPS):
        for k, (model, optimizer) in enumerate(pairs):
            turn(model, optimizer, torch.randn(6, 4) * (float("nan") if step == bad and k == of else 1))


def seen(told: Sequence[Memory]) -> list[Diagnosis]:
    discover.finish_all()
    return [s.diagnosis for s in told if s.diagnosis is not None and s.diagnosis.steps]


def test_a_model_that_trains_later_leaves_its_name_out_of_the_first_ones(told: list[Memory]) -> None:
    first, second = pair(), pair()
    train([first], bad=0)
    train([second])
    one, other = seen(told)
    assert {p.name for p in one.facts.parameters} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert "layer '0'" in one.hypotheses[0].description and one.hypotheses[0].step == 0
    assert one.facts.models == other.facts.models == ("sequential",)
    assert (one.steps, other.steps) == (STEPS, STEPS)  # the other's own too, though it left while the first trained


def test_a_model_that_only_waits_leaves_no_numbers_in_the_first_records(told: list[Memory]) -> None:
    first, waits = pair(), pair()
    turn(*first, torch.randn(6, 4))
    session = next(iter(NeuralDbg.active))
    assert not session._trace.points  # the first step's record waits: what its names are hangs on the second's turn
    train([first])
    discover.finish_all()
    assert not any(name.startswith("sequential") for name in session._trace.points)
    assert session.diagnose().steps == STEPS + 1
    assert not waits[0]._forward_pre_hooks


@pytest.mark.parametrize("of", [0, 1])
def test_models_in_turn_are_one_session_whose_step_is_a_turn_of_all(told: list[Memory], of: int) -> None:
    train([pair(), pair()], bad=BAD, of=of)
    (diagnosis,) = seen(told)
    assert diagnosis.facts.models == ("sequential", "sequential2")
    assert (diagnosis.steps, diagnosis.facts.coverage.steps) == (STEPS, STEPS)
    assert diagnosis.verdict == "failed"
    hypothesis = diagnosis.hypotheses[0]
    assert (hypothesis.cause, hypothesis.step) == ("nan_in_input", BAD)
    assert ("'sequential.0'", "'sequential2'")[of] in hypothesis.description


@pytest.mark.parametrize("models", [2, 3])
def test_a_session_by_hand_counts_the_same_steps(models: int) -> None:
    pairs = [pair() for _ in range(models)]
    with NeuralDbg(*(model for model, _ in pairs)) as dbg:
        train(pairs, bad=BAD)
    diagnosis = dbg.diagnose()
    assert (diagnosis.steps, diagnosis.facts.coverage.steps) == (STEPS, STEPS)
    assert diagnosis.verdict == "failed"  # though the loss that the step ends with is another model's
    assert (diagnosis.hypotheses[0].cause, diagnosis.hypotheses[0].step) == ("nan_in_input", BAD)


def test_two_optimizers_after_one_backward_stay_one_step() -> None:
    (first, one), (second, other) = pair(), pair()
    with NeuralDbg(first, second) as dbg:
        for _ in range(STEPS):
            one.zero_grad()
            other.zero_grad()
            x = torch.randn(6, 4)
            ((first(x) - 1).square() + (second(x) - 1).square()).mean().backward()
            one.step()
            other.step()
    assert dbg.diagnose().steps == STEPS


def test_a_critic_that_steps_more_often_shares_its_generators_step() -> None:
    (critic, one), (generator, other) = pair(), pair()
    with NeuralDbg(critic, generator) as dbg:
        for _ in range(STEPS):
            for _ in range(3):
                turn(critic, one, torch.randn(6, 4))
            turn(generator, other, torch.randn(6, 4))
    assert dbg.diagnose().steps == STEPS


def test_a_model_made_late_that_takes_turns_is_left_alone_and_starts_no_session_a_step(told: list[Memory]) -> None:
    first = pair()
    train([first])
    second = pair()
    train([first, second], bad=BAD)
    one, *others = seen(told)
    assert one.steps == 2 * STEPS and (one.hypotheses[0].cause, one.hypotheses[0].step) == ("nan_in_input", STEPS + BAD)
    assert others == []  # what was begun for it is forgotten


def test_a_model_with_gradients_of_an_earlier_training_does_not_wait_for_a_turn(told: list[Memory]) -> None:
    first, failed = pair(), nn.Linear(4, 1)
    (failed(torch.randn(6, 4)).mean() * float("nan")).backward()
    _waits = SGD(failed.parameters(), 0.05)
    train([first])
    (diagnosis,) = seen(told)
    assert (diagnosis.verdict, diagnosis.facts.models) == ("healthy", ("sequential",))


def test_trainings_in_threads_hear_their_own_losses_alone() -> None:
    """Each thread's losses have a level of their own; a mixed series would jump between them."""
    ends: list[tuple[float, Diagnosis]] = []
    start = threading.Barrier(3)

    def one(level: float) -> None:
        model, optimizer = pair()
        with NeuralDbg(model) as dbg:
            start.wait()
            for _ in range(40):
                optimizer.zero_grad()
                (
                    model(torch.randn(6, 4)).square().mean() * 0.0 + model(torch.zeros(1, 4)).sum() * 0.0 + level
                ).backward()
                optimizer.step()
            start.wait()
        ends.append((level, dbg.diagnose()))

    threads = [threading.Thread(target=one, args=(10.0**k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 3
    for level, diagnosis in ends:
        assert {value for _, value in diagnosis.series["loss"]} == {level}
        assert diagnosis.steps == 40
