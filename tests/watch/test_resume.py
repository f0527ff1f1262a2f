"""Whether an optimizer has a past: by its own step counter, and by where its schedule stands when it is met."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.diagnosis import Diagnosis


def step(model: nn.Module, optimizer: Any, teacher: nn.Module, scaler: Any = None, half: bool = False) -> None:
    inputs = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=half):
        loss = nn.functional.mse_loss(model(inputs).float(), teacher(inputs).float())
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def build(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def first(kind: Any, restored: bool, scaler: Any = None, **more: float) -> bool | None:
    """What is said of an optimizer that has taken three steps before, with or without its state."""
    model, teacher = build(8), build(4).requires_grad_(False)
    optimizer = kind(model.parameters(), **more)
    for _ in range(3):
        step(model, optimizer, teacher)
    again = kind(model.parameters(), **more)
    if restored:
        again.load_state_dict(optimizer.state_dict())
    with NeuralDbg(model) as dbg:
        for _ in range(3):
            step(model, again, teacher, scaler)
    return dbg.diagnose().facts.optimizers[0].fresh


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaler"])
@pytest.mark.parametrize("restored", [False, True], ids=["new", "restored"])
def test_adam_says_by_its_counter_whether_it_has_a_past(restored: bool, scaled: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if scaled else None
    assert first(torch.optim.Adam, restored, scaler) is not restored


def test_sgd_has_no_counter_to_tell_it_by() -> None:
    assert first(torch.optim.SGD, restored=True, lr=0.1, momentum=0.9) is None


def resumed(optimizer_too: bool, rate: float = 1e-2) -> Diagnosis:
    """Three hundred steps, a checkpoint, and forty more from it."""
    torch.manual_seed(0)
    model, teacher = build(64), build(4).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.985)
    for _ in range(300):
        step(model, optimizer, teacher)
        schedule.step()
    again = torch.optim.Adam(model.parameters(), lr=rate)
    if optimizer_too:
        again.load_state_dict(optimizer.state_dict())
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            step(model, again, teacher)
    return dbg.diagnose()


def test_a_resume_with_everything_in_place_is_healthy() -> None:
    assert resumed(optimizer_too=True).verdict == "healthy"


def test_trained_weights_that_are_tuned_further_at_a_small_rate_are_healthy() -> None:
    assert resumed(optimizer_too=False, rate=1e-4).verdict == "healthy"


def test_a_resume_without_the_optimizers_state_is_recognised() -> None:
    diagnosis = resumed(optimizer_too=False)
    assert diagnosis.verdict in ("failed", "warning")
    cause = (*diagnosis.hypotheses, *diagnosis.notes)[0]
    assert (cause.cause, cause.step) == ("schedule_jump", 0) and "Adam starts without its state" in cause.description


def test_a_schedule_is_known_by_the_first_rate_that_it_keeps_in_its_group() -> None:
    model, teacher = build(8), build(4).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said: list[bool | None] = []
    for scheduled in (False, True, True):
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if scheduled and len(said) == 1 else None
        with NeuralDbg(model) as dbg:
            for _ in range(3):
                step(model, optimizer, teacher)
                if schedule is not None:
                    schedule.step()
        said.append(dbg.diagnose().facts.optimizers[0].first_rate)
    assert said == [None, True, False]


def test_a_scaler_that_was_not_restored_with_its_optimizer_is_recognised() -> None:
    model, teacher = build(8), build(4).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        step(model, optimizer, teacher)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)  # float16 gradients pass the format's limit
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            step(model, optimizer, teacher, scaler, half=True)
    diagnosis = dbg.diagnose()
    assert diagnosis.verdict == "warning"
    assert "GradScaler looks for its scale anew" in diagnosis.notes[0].description
