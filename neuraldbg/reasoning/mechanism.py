"""Which symptom brings about which: the links of the causal graph, and the failure type each symptom belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from neuraldbg.events import EventType, SemanticEvent

_END = ("nonfinite_activation", "loss_nonfinite", "nonfinite_gradient", "nonfinite_weight")
_LOSS = ("loss_spike", "loss_diverging", "loss_oscillating", "loss_plateau")
_STARVE = ("vanishing_with_depth", "vanishing_gradient", "zero_gradient", "loss_plateau")
_BURST = ("exploding_gradient", "saturated_gradient", "violent_update", *_END, "loss_spike", "loss_diverging")
_FORWARD = ("dead_units", "saturation", "constant_output", "attention_onehot", "activation_growth")

MECHANISM: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        cause: frozenset(effects)
        for cause, effects in {
            "nan_input": _END,
            "inf_input": _END,
            "input_shift": (*_FORWARD, *_LOSS, *_BURST),
            "input_sentinel": (*_FORWARD, *_LOSS, *_BURST),
            "zero_batch": ("constant_output", "loss_spike", "loss_oscillating", "dead_units"),
            "repeated_batch": ("slow_progress", "loss_plateau"),
            "unscaled_input": (*_FORWARD, *_STARVE, *_BURST, "slow_progress", "recurrent_growth", "large_weights"),
            "unscaled_target": (*_BURST, "slow_progress", "loss_plateau", "saturation", "output_range"),
            "target_outlier": (*_LOSS, *_BURST, "dead_units"),
            "target_shift": (*_LOSS, *_BURST, "dead_units", "saturation"),
            "negated_loss": (*_BURST, "loss_oscillating", "dead_units", "saturation", "loss_plateau"),
            "small_weights": (*_STARVE, "constant_output", "dead_units"),
            "large_weights": ("signal_growth", "saturation", "dead_units", "attention_onehot", *_BURST),
            "negative_bias": ("dead_units", "constant_output", *_STARVE),
            "identical_units": ("loss_plateau", "constant_output", "slow_progress"),
            "recurrent_decay": (*_STARVE, "slow_progress"),
            "zero_factors": (*_STARVE, "dead_units"),
            "norm_over_one": (*_STARVE, "constant_output"),
            "softmax_over_one": (*_STARVE, "constant_output", "saturation"),
            "double_softmax": (*_STARVE, "slow_progress"),
            "output_range": ("dead_units", "saturation", *_STARVE),
            "target_range": (*_BURST, "activation_growth", "loss_oscillating"),
            "summed_loss": (*_BURST, "loss_oscillating"),
            "eval_mode": ("loss_plateau",),
            "nothing_trains": ("loss_plateau", "stuck_parameter", "updates_stop", "zero_gradient"),
            "no_gradient": ("loss_plateau", "stuck_parameter", "slow_progress"),
            "lost_gradient": ("loss_plateau", "loss_spike", "slow_progress"),
            "nonfinite_activation": _END,
            "dead_units": (*_STARVE, "constant_output", "dead_units", "slow_progress"),
            "saturation": (*_STARVE, "vanishing_group", "constant_output", "slow_progress"),
            "attention_onehot": (*_STARVE, "constant_output", "slow_progress"),
            "constant_output": _STARVE,
            "signal_growth": (*_BURST, "activation_growth"),
            "recurrent_growth": (*_BURST, "activation_growth"),
            "function_growth": (*_BURST, *_LOSS, "activation_growth", "dead_units"),
            "scale_collapse": ("exploding_gradient", "loss_spike", "loss_oscillating", *_END),
            "activation_growth": (*_BURST, "saturation", "attention_onehot"),
            "loss_nonfinite": ("nonfinite_gradient", "nonfinite_weight"),
            "loss_spike": ("exploding_gradient", "violent_update", "loss_diverging", "dead_units"),
            "loss_diverging": _BURST,
            "loss_oscillating": ("loss_diverging", "loss_plateau"),
            "nonfinite_gradient": ("nonfinite_weight", "nonfinite_activation", "loss_nonfinite"),
            "vanishing_with_depth": ("loss_plateau", "slow_progress", "zero_gradient"),
            "vanishing_group": ("loss_plateau",),
            "vanishing_gradient": ("loss_plateau", "slow_progress", "zero_gradient"),
            "zero_gradient": ("loss_plateau", "constant_output"),
            "exploding_gradient": (*_BURST, "loss_oscillating", "dead_units", "saturation", "activation_growth"),
            "saturated_gradient": _LOSS,
            "carried_gradient": (*_BURST, "loss_oscillating", "dead_units", "saturation", "loss_plateau"),
            "unclipped_gradient": (*_FORWARD, *_LOSS, *_STARVE, *_BURST),
            "violent_update": (*_FORWARD, *_LOSS, *_STARVE, *_BURST),
            "outside_write": (*_FORWARD, *_LOSS, *_STARVE, *_BURST),
            "rate_jump": (*_FORWARD, *_LOSS, *_STARVE, *_BURST),
            "all_skipped": ("loss_plateau", "updates_stop"),
            "rate_zero": ("loss_plateau", "updates_stop", "slow_progress"),
            "lost_state": (*_FORWARD, *_LOSS, *_STARVE, *_BURST),
            "stuck_parameter": ("loss_plateau", "slow_progress"),
            "updates_stop": ("loss_plateau", "slow_progress"),
            "nonfinite_weight": _END,
            "short_path": ("loss_plateau", "slow_progress"),
            "decay_outweighs": (*_STARVE, "constant_output", "weights_shrink", "slow_progress"),
            "weights_shrink": (*_STARVE, "constant_output", "small_weights"),
        }.items()
    }
)
"""symptom -> what it brings about in the same or a later step."""

BACKWARD = frozenset(
    {"vanishing_with_depth", "vanishing_gradient", "zero_gradient", "exploding_gradient", "nonfinite_gradient"}
)
"""Symptoms that travel against the forward order."""

_FAILURE: Mapping[str, str] = MappingProxyType(
    {
        "saturation": "saturated_activations",
        "attention_onehot": "saturated_activations",
        "softmax_over_one": "saturated_activations",
        "double_softmax": "saturated_activations",
        "dead_units": "dead_neurons",
        "negative_bias": "dead_neurons",
        "output_range": "dead_neurons",
        "small_weights": "vanishing_gradients",
        "recurrent_decay": "vanishing_gradients",
        "zero_factors": "vanishing_gradients",
        "norm_over_one": "vanishing_gradients",
        "constant_output": "vanishing_gradients",
        "nothing_trains": "vanishing_gradients",
        "no_gradient": "vanishing_gradients",
        "identical_units": "optimizer_instability",
        "eval_mode": "optimizer_instability",
    }
)


def failure_of(event: SemanticEvent) -> str:
    """The failure type that an event belongs to when it is the first that harms.

    >>> from neuraldbg.events import observed
    >>> failure_of(observed("dead_units", 3, "fc1"))
    'dead_neurons'
    """
    if event.symptom in _FAILURE:
        return _FAILURE[event.symptom]
    if event.event_type is EventType.DATA_ANOMALY:
        return "data_anomaly"
    if event.event_type is EventType.OPTIMIZER_INSTABILITY:
        return "optimizer_instability"
    if event.event_type is EventType.GRADIENT_HEALTH_TRANSITION:
        return "vanishing_gradients" if str(event.to_state) == "vanishing" else "exploding_gradients"
    by_state = {"saturated": "saturated_activations", "dead": "dead_neurons"}
    return by_state.get(str(event.to_state), "exploding_gradients")
