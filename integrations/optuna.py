"""NeuralDBG in an Optuna study: each trial says why it failed, and one that cannot recover may end early.

    from neuraldbg.integrations.optuna import watch

    def objective(trial):
        model = make_model(trial)
        with watch(trial, model, end_failing=True):
            train(model, trial)
        return evaluate(model)

    study.optimize(objective, n_trials=100, catch=(TrainingFailed,))

A trial whose hyper-parameters are the cause is pruned, so that the sampler learns of it; one whose data or code is the
cause fails, for no other draw would mend it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._content import shown
from ._missing import missing

try:
    import optuna
except ImportError as error:
    raise missing("optuna") from error

from neuraldbg import NeuralDbg, TrainingFailed
from neuraldbg.diagnosis import Diagnosis
from neuraldbg.switch import strict

__all__ = ["HYPER_PARAMETERS", "end", "note", "watch"]

log = logging.getLogger("neuraldbg")

HYPER_PARAMETERS = frozenset(
    {
        # of the optimizer: rate, schedule, decay, batch
        "batch_too_small",
        "learning_rate_too_high",
        "learning_rate_too_low",
        "schedule_jump",
        "too_few_steps",
        "warmup_missing",
        "weight_decay_too_high",
        # of the architecture and its start: depth, width, activation, norms, scale of the weights
        "attention_logits_scale",
        "bad_initialisation",
        "dead_relu_negative_bias",
        "model_too_small",
        "normalisation_over_one_feature",
        "recurrent_explosion",
        "recurrent_vanishing",
        "residual_growth_without_norm",
        "saturating_activations_deep",
        "unbounded_preactivation",
        # of the method: number format, targets that move, two models against each other
        "bootstrap_divergence",
        "discriminator_saturation",
        "half_precision_overflow",
        "half_precision_underflow",
        "overfitting",
        "variance_collapse",
    }
)
"""Causes that another draw of the hyper-parameters may avoid. All others lie in the data or the code, or are not
known: such a trial says nothing of its hyper-parameters, and a sampler must not learn from it."""


@contextmanager
def watch(trial: optuna.Trial, model: Any, *, end_failing: bool = False, **settings: Any) -> Iterator[NeuralDbg]:
    """A `NeuralDbg` session of this trial, whose diagnosis ends up in the trial's user attributes.

    model: what `NeuralDbg` takes. end_failing: end a trial that cannot recover (weights or losses that stay
    non-finite), as `end` says. settings: those of `NeuralDbg`, sinks too. Raises ValueError for `end_failing` with
    an `on_failure` of your own.
    """
    if end_failing and settings.get("on_failure") is not None:
        raise ValueError(f"end_failing=True and on_failure={settings['on_failure']!r} exclude each other; give one")
    if end_failing:
        settings["on_failure"] = "raise"
    failed: TrainingFailed | None = None
    dbg = NeuralDbg(model, **settings)
    try:
        with dbg:
            yield dbg
    except TrainingFailed as error:
        if not end_failing or error.diagnosis is not dbg.diagnose():
            raise
        failed = error
    finally:
        if dbg.settings.enabled:
            note(trial, dbg.diagnose())
    if failed is not None:
        end(failed.diagnosis)


def note(trial: optuna.Trial, diagnosis: Diagnosis) -> None:
    """Write verdict, cause, layer, step and confidence into the trial's user attributes, as `neuraldbg.verdict` etc.

    A healthy trial has the verdict alone. Where the study's storage is away, a warning is logged and nothing raised.
    """
    top = shown(diagnosis)
    values: dict[str, Any] = {"verdict": str(diagnosis.verdict)}
    if top is not None:
        values |= {
            "cause": top.cause,
            "layer": top.layer_name,
            "step": top.step,
            "confidence": round(top.confidence, 4),
        }
    try:
        for name, value in values.items():
            if value is not None:
                trial.set_user_attr(f"neuraldbg.{name}", value)
    except Exception as error:  # the study's storage is away: its trial goes on
        if strict():
            raise
        log.warning("NeuralDBG could not write into trial %s: %r", trial.number, error)


def end(diagnosis: Diagnosis) -> None:
    """Raise what ends a failed trial: TrialPruned where hyper-parameters are the cause, else `TrainingFailed`.

    It fits `on_failure` too, for a session of your own: `NeuralDbg(model, on_failure=end)`.
    """
    cause = diagnosis.top.cause if diagnosis.top is not None else "unknown"
    if cause in HYPER_PARAMETERS:
        raise optuna.TrialPruned(str(diagnosis.top))
    raise TrainingFailed(diagnosis)
