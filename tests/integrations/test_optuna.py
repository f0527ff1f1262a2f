"""Trials of a real Optuna study carry their diagnosis, and end early where that was asked for."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
import torch
from optuna.trial import TrialState
from torch import nn
from torch.nn import functional as F

from neuraldbg import NeuralDbg, TrainingFailed
from neuraldbg.commands.explain import pages
from neuraldbg.integrations.optuna import HYPER_PARAMETERS, end, note, watch

STEPS = 40
optuna.logging.set_verbosity(optuna.logging.ERROR)


def train(model: nn.Module, rate: float, broken_at: int | None = None) -> int:
    """A regression by SGD; returns how many steps were made."""
    optimizer = torch.optim.SGD(model.parameters(), rate)
    g = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        x = torch.randn(16, 4, generator=g)
        y = x.sum(1, keepdim=True)
        if broken_at is not None and step >= broken_at:
            x[0, 0] = math.nan
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return STEPS


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def trial_of(objective: Any, **optimize: Any) -> optuna.trial.FrozenTrial:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=1, **optimize)
    return study.trials[0]


def objective(rate: float, broken_at: int | None = None, **arguments: Any) -> Any:
    def run(trial: optuna.Trial) -> float:
        model = net()
        with watch(trial, model, **arguments):
            train(model, rate, broken_at)
        return 1.0

    return run


@pytest.mark.parametrize("ends", [False, True])
def test_a_healthy_trial_is_left_alone_and_says_so(ends: bool) -> None:
    trial = trial_of(objective(0.05, end_failing=ends))
    assert trial.state is TrialState.COMPLETE
    assert trial.user_attrs == {"neuraldbg.verdict": "healthy"}


@pytest.mark.parametrize(
    ("rate", "broken_at", "cause"), [(1e3, None, "learning_rate_too_high"), (0.05, 9, "nan_in_input")]
)
def test_a_failing_trial_is_only_told_of_where_nothing_else_was_asked_for(
    rate: float, broken_at: int | None, cause: str
) -> None:
    trial = trial_of(objective(rate, broken_at))
    assert trial.state is TrialState.COMPLETE
    assert trial.user_attrs["neuraldbg.verdict"] == "failed" and trial.user_attrs["neuraldbg.cause"] == cause
    assert isinstance(trial.user_attrs["neuraldbg.step"], int) and 0 < trial.user_attrs["neuraldbg.confidence"] <= 1


def test_a_trial_whose_rate_is_the_cause_is_pruned() -> None:
    trial = trial_of(objective(1e9, end_failing=True))
    assert trial.state is TrialState.PRUNED
    assert trial.user_attrs["neuraldbg.cause"] == "learning_rate_too_high"


def test_a_trial_whose_data_is_the_cause_fails_and_the_study_goes_on_where_it_is_caught() -> None:
    trial = trial_of(objective(0.05, 9, end_failing=True), catch=(TrainingFailed,))
    assert trial.state is TrialState.FAIL
    assert trial.user_attrs["neuraldbg.cause"] == "nan_in_input" and trial.user_attrs["neuraldbg.step"] == 9
    with pytest.raises(TrainingFailed, match="NaN"):
        trial_of(objective(0.05, 9, end_failing=True))


def test_a_failure_that_may_pass_ends_no_trial() -> None:
    """Units that are dead may be revived: only what is terminal ends a trial."""
    made = []

    def run(trial: optuna.Trial) -> float:
        torch.manual_seed(0)
        first = nn.Linear(4, 16)
        nn.init.constant_(first.bias, -50)
        model = nn.Sequential(first, nn.ReLU(), nn.Linear(16, 1))
        with watch(trial, model, end_failing=True):
            made.append(train(model, 0.05))
        return 1.0

    trial = trial_of(run)
    assert made == [STEPS] and trial.state is TrialState.COMPLETE
    assert trial.user_attrs["neuraldbg.verdict"] == "failed"
    assert (trial.user_attrs["neuraldbg.cause"], trial.user_attrs["neuraldbg.layer"]) == (
        "dead_relu_negative_bias",
        "0",
    )


def test_a_warning_ends_no_trial() -> None:
    trial = trial_of(objective(0.0, end_failing=True))
    assert trial.state is TrialState.COMPLETE and trial.user_attrs["neuraldbg.verdict"] == "warning"


def test_where_watching_is_off_nothing_is_said_of_a_trial() -> None:
    trial = trial_of(objective(0.05, 9, end_failing=True, enabled=False))
    assert trial.state is TrialState.COMPLETE and trial.user_attrs == {}


def test_two_wishes_for_a_failing_trial_are_refused() -> None:
    with pytest.raises(ValueError, match="on_failure='stop' exclude each other; give one"):
        trial_of(objective(0.05, end_failing=True, on_failure="stop"))


def test_a_session_of_ones_own_ends_its_trial_by_on_failure() -> None:
    def run(trial: optuna.Trial) -> float:
        model = net()
        with NeuralDbg(model, on_failure=end):
            return float(train(model, 1e9))

    assert trial_of(run).state is TrialState.PRUNED


def test_the_users_own_pruning_and_errors_pass_with_the_diagnosis_kept() -> None:
    def prunes(trial: optuna.Trial) -> float:
        model = net()
        with watch(trial, model, end_failing=True):
            train(model, 0.05)
            raise optuna.TrialPruned("not good enough")

    def breaks(trial: optuna.Trial) -> float:
        model = net()
        with watch(trial, model, end_failing=True):
            train(model, 0.05)
            raise KeyError("mine")

    pruned, broken = trial_of(prunes), trial_of(breaks, catch=(KeyError,))
    assert (pruned.state, broken.state) == (TrialState.PRUNED, TrialState.FAIL)
    assert "neuraldbg.verdict" in pruned.user_attrs and "neuraldbg.verdict" in broken.user_attrs


def test_a_storage_that_is_away_ends_no_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEURALDBG_STRICT")

    class Away:
        number = 7

        def set_user_attr(self, name: str, value: Any) -> None:
            raise ConnectionError("refused")

    model = net()
    with watch(Away(), model) as dbg:
        train(model, 0.05)
    assert "trial 7" in caplog.text
    note(Away(), dbg.diagnose())


def test_every_cause_named_here_is_one() -> None:
    assert set(pages()) >= HYPER_PARAMETERS
    assert not HYPER_PARAMETERS & {"unknown", "nan_in_input", "label_error", "missing_zero_grad", "wrong_loss"}
