"""The examples of the first README, each on a training that fails as its comment says and on a healthy one."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from neuraldbg import NeuralDbg

STEPS = 300
SPIKE = 50
BROKEN = 20


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield


def dataloader(
    features: int = 10, batches: int = STEPS, nan_from: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """A linear problem with a little noise; from `nan_from` on one value of each batch is NaN."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(features, 1, generator=generator)
    for step in range(batches):
        inputs = torch.randn(32, features, generator=generator)
        targets = inputs @ weight + 0.1 * torch.randn(32, 1, generator=generator)
        if nan_from is not None and step >= nan_from:
            inputs[3, 4] = torch.nan
        yield inputs, targets


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1))


def named_model() -> nn.Module:
    layers = [("linear1", nn.Linear(10, 16)), ("relu1", nn.ReLU()), ("linear2", nn.Linear(16, 1))]
    return nn.Sequential(OrderedDict(layers))


def deep_sigmoid_model(depth: int = 9) -> nn.Module:
    """Each sigmoid multiplies the gradient by at most a quarter; 'linear1' gets what is left."""
    layers: list[tuple[str, nn.Module]] = []
    width = 10
    for i in range(1, depth):
        layers += [(f"linear{i}", nn.Linear(width, 16)), (f"sigmoid{i}", nn.Sigmoid())]
        width = 16
    return nn.Sequential(OrderedDict([*layers, (f"linear{depth}", nn.Linear(width, 1))]))


def basic_usage(model: nn.Module, nan_from: int | None = None) -> tuple[NeuralDbg, list[float]]:
    """The loop of "Basic Usage", as printed, and its losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.MSELoss()
    losses = []

    with NeuralDbg(model) as dbg:
        for _step, (inputs, targets) in enumerate(dataloader(nan_from=nan_from)):
            optimizer.zero_grad()

            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    return dbg, losses


def with_recorded_loss(zero_grad: bool, rate: float, spike_at: int | None = None) -> tuple[NeuralDbg, list[float]]:
    """The loop of "Optimizer Instability Detection"; with zero_grad it is the repaired one.

    `spike_at`: the update before this step is taken at 300 times the rate 0.01, so that this step's loss jumps.
    """
    model = named_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    criterion = nn.MSELoss()
    inputs, targets = next(dataloader())
    losses = []

    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            dbg.step = step
            if zero_grad:
                optimizer.zero_grad()
            if spike_at is not None:
                optimizer.param_groups[0]["lr"] = 3.0 if step == spike_at - 1 else rate
            output = model(inputs)
            loss = criterion(output, targets)
            loss.backward()

            # Feed loss values for optimizer instability detection
            dbg.record_loss(loss.item())
            losses.append(loss.item())

            optimizer.step()

    return dbg, losses


def test_basic_usage_on_a_healthy_training_blames_nothing() -> None:
    """The list is empty, and taking its first element says that the run is healthy."""
    dbg, losses = basic_usage(small_model())
    assert losses[-1] < 0.2 * losses[0]
    assert dbg.diagnose().verdict == "healthy"
    assert dbg.explain_failure() == []
    with pytest.raises(IndexError, match="healthy"):
        print(dbg.explain_failure()[0])


def test_basic_usage_names_the_layer_where_the_gradient_vanishes() -> None:
    dbg, losses = basic_usage(deep_sigmoid_model())
    assert min(losses[-20:]) > 0.3 * losses[0]
    explanations = dbg.explain_failure()
    where = r"layer '(linear|sigmoid)1' at step \d+"
    sentence = rf"Gradient vanishing originated in {where}, likely due to .+ \(confidence: 0\.\d\d\)"
    assert re.fullmatch(sentence, str(explanations[0]))
    assert explanations[0].cause == "saturating_activations_deep"


def test_the_inference_api_has_nothing_to_tell_of_a_healthy_training() -> None:
    dbg, _ = basic_usage(small_model())
    assert dbg.trace_causal_chain("vanishing_gradients") == []
    assert dbg.detect_coupled_failures() == []
    assert [h.failure_type for h in dbg.get_causal_hypotheses() if h.failure_type == "vanishing_gradients"] == []


def test_the_inference_api_ranks_causes_and_names_the_chain() -> None:
    dbg, _ = basic_usage(deep_sigmoid_model())
    hypotheses = dbg.get_causal_hypotheses()
    assert hypotheses[0].failure_type == "vanishing_gradients"
    confidences = [h.confidence for h in hypotheses]
    assert confidences == sorted(confidences, reverse=True)

    chain = dbg.trace_causal_chain("vanishing_gradients")
    assert chain
    assert all(isinstance(link, str) for link in chain)

    couplings = dbg.detect_coupled_failures()
    assert all(0 <= c["step_difference"] <= 5 and 0 <= c["confidence"] <= 1 for c in couplings)
    assert all(c["trigger"] and c["consequence"] for c in couplings)


def test_a_repaired_loop_with_recorded_losses_is_healthy() -> None:
    dbg, losses = with_recorded_loss(zero_grad=True, rate=0.05)
    assert losses[-1] < 0.2 * losses[0]
    assert dbg.diagnose().verdict == "healthy"
    assert dbg.explain_failure("optimizer_instability") == []


def test_a_loss_spike_is_detected_at_its_step() -> None:
    dbg, losses = with_recorded_loss(zero_grad=True, rate=0.01, spike_at=SPIKE)
    assert losses[SPIKE] > 20 * max(losses[SPIKE - 5 : SPIKE])
    hypotheses = dbg.explain_failure("optimizer_instability")
    assert hypotheses[0].description.startswith(f"Loss spike detected at step {SPIKE}")


def test_the_loop_as_it_was_printed_lacks_a_zero_grad() -> None:
    """Gradients add up over the steps, so the loss swings ever wider where the repaired loop's falls."""
    dbg, losses = with_recorded_loss(zero_grad=False, rate=0.05)
    _, repaired = with_recorded_loss(zero_grad=True, rate=0.05)
    assert repaired[-1] < 0.01 * losses[0]
    assert not math.isfinite(losses[-1])
    top = dbg.explain_failure()[0]
    assert (top.cause, top.failure_type) == ("missing_zero_grad", "optimizer_instability")
    assert "zero_grad" in top.remedy


def test_clean_inputs_are_no_data_anomaly() -> None:
    dbg, _ = basic_usage(named_model())
    assert dbg.explain_failure("data_anomaly") == []


def test_nan_in_the_input_is_detected_with_its_layer_and_step() -> None:
    dbg, _ = basic_usage(named_model(), nan_from=BROKEN)
    hypotheses = dbg.explain_failure("data_anomaly")
    assert hypotheses[0].description.startswith(f"NaN values detected in input to layer 'linear1' at step {BROKEN}")
    assert (hypotheses[0].cause, hypotheses[0].step) == ("nan_in_input", BROKEN)


def test_events_of_a_healthy_training_collapse_to_no_more_than_they_are() -> None:
    dbg, _ = basic_usage(named_model())
    assert len(dbg._collapse_events()) <= len(dbg.events)
    assert [e for e in dbg.events if e.event_type == "data_anomaly"] == []


def test_repeated_events_collapse_into_one_with_its_range() -> None:
    dbg, _ = basic_usage(named_model(), nan_from=BROKEN)
    collapsed = dbg._collapse_events()
    assert collapsed == dbg.collapse_events()
    assert len(collapsed) < len(dbg.events)
    assert sum(e.collapsed_count for e in collapsed) == len(dbg.events)
    (broken,) = [e for e in collapsed if e.to_state == "nan" and e.event_type == "data_anomaly"]
    assert broken.collapsed_count > 1
    assert broken.step_range is not None
    assert broken.step_range[0] == BROKEN
