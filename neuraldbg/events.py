"""The one vocabulary: what can be seen in a training, as frozen values.

A `SemanticEvent` says that a layer, the loss, the optimizer or the data passed from one health state to
another at a step. Its `symptom` is the precise observation (``dead_units``, ``rate_jump``); `SYMPTOMS` lists
all of them with the state each one means and the phase of a step in which it can be seen. Events that a
user appends by hand need no symptom: one is taken from their type and state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple


class _Text(str, Enum):
    """An enum whose members are their own text, also when formatted (like StrEnum, which 3.10 lacks)."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class EventType(_Text):
    GRADIENT_HEALTH_TRANSITION = "gradient_health_transition"
    ACTIVATION_REGIME_SHIFT = "activation_regime_shift"
    OPTIMIZER_INSTABILITY = "optimizer_instability"
    DATA_ANOMALY = "data_anomaly"


class GradientHealth(_Text):
    HEALTHY = "healthy"
    VANISHING = "vanishing"
    EXPLODING = "exploding"
    SATURATED = "saturated"


class ActivationHealth(_Text):
    NORMAL = "normal"
    SATURATED = "saturated"
    DEAD = "dead"
    ANOMALOUS = "anomalous"


class OptimizerHealth(_Text):
    STABLE = "stable"
    PLATEAU = "plateau"
    SPIKE = "spike"
    DIVERGING = "diverging"
    OSCILLATING = "oscillating"


class DataHealth(_Text):
    NORMAL = "normal"
    NAN = "nan"
    INF = "inf"
    SHIFTED = "shifted"
    CONSTANT = "constant"
    UNSCALED = "unscaled"


LISTED = 8  # names (of samples, features, parameters) that an event holds at most: a hint, no inventory
HEALTHY_STATES = frozenset({"healthy", "normal", "stable"})

NORMAL_STATE: Mapping[EventType, _Text] = MappingProxyType(
    {
        EventType.GRADIENT_HEALTH_TRANSITION: GradientHealth.HEALTHY,
        EventType.ACTIVATION_REGIME_SHIFT: ActivationHealth.NORMAL,
        EventType.OPTIMIZER_INSTABILITY: OptimizerHealth.STABLE,
        EventType.DATA_ANOMALY: DataHealth.NORMAL,
    }
)


class Phase(int, Enum):
    """The order of things inside one step; of two events in one step the earlier phase comes first."""

    INPUT = 0
    PARAMETERS = 1
    ARCHITECTURE = 2
    FORWARD = 3
    LOSS = 4
    GRADIENT = 5
    UPDATE = 6


class Symptom(NamedTuple):
    """What a symptom means: its event type, the state entered, the phase of the step, one plain line."""

    event_type: EventType
    to_state: _Text
    phase: Phase
    text: str


_G, _A, _O, _D = EventType
_GRAD, _ACT, _OPT, _DATA = GradientHealth, ActivationHealth, OptimizerHealth, DataHealth

SYMPTOMS: Mapping[str, Symptom] = MappingProxyType(
    {
        # data, before the model sees it
        "nan_input": Symptom(_D, _DATA.NAN, Phase.INPUT, "NaN values in the input"),
        "inf_input": Symptom(_D, _DATA.INF, Phase.INPUT, "infinite values in the input"),
        "input_shift": Symptom(_D, _DATA.SHIFTED, Phase.INPUT, "the input distribution shifted"),
        "input_sentinel": Symptom(_D, _DATA.SHIFTED, Phase.INPUT, "one far-out value repeated in the input"),
        "zero_batch": Symptom(_D, _DATA.CONSTANT, Phase.INPUT, "a batch of zeros"),
        "repeated_batch": Symptom(_D, _DATA.CONSTANT, Phase.INPUT, "batches that come back again and again"),
        "unscaled_input": Symptom(_D, _DATA.UNSCALED, Phase.INPUT, "inputs of large scale or offset"),
        "unscaled_target": Symptom(_D, _DATA.UNSCALED, Phase.INPUT, "targets of large scale"),
        "target_shift": Symptom(_D, _DATA.SHIFTED, Phase.INPUT, "the targets change their scale"),
        "target_outlier": Symptom(_D, _DATA.SHIFTED, Phase.INPUT, "a target far outside the others"),
        # what the weights and the architecture are before any update
        "small_weights": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "the signal shrinks from layer to layer"),
        "large_weights": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "the signal grows from layer to layer"),
        "negative_bias": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "a bias outweighs the signal"),
        "identical_units": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "the units of a layer are identical"),
        "recurrent_decay": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "the recurrent map forgets its state"),
        "zero_factors": Symptom(_A, _ACT.ANOMALOUS, Phase.PARAMETERS, "two zero factors in a row"),
        "norm_over_one": Symptom(_A, _ACT.ANOMALOUS, Phase.ARCHITECTURE, "a norm over a single value"),
        "softmax_over_one": Symptom(_A, _ACT.SATURATED, Phase.ARCHITECTURE, "a softmax over a single value"),
        "double_softmax": Symptom(_A, _ACT.SATURATED, Phase.ARCHITECTURE, "probabilities go into a loss on logits"),
        "output_range": Symptom(_A, _ACT.ANOMALOUS, Phase.ARCHITECTURE, "the output cannot reach the targets"),
        "target_range": Symptom(_O, _OPT.DIVERGING, Phase.ARCHITECTURE, "targets outside the range of the loss"),
        "negated_loss": Symptom(_O, _OPT.DIVERGING, Phase.ARCHITECTURE, "backward starts from the negated loss"),
        "summed_loss": Symptom(_O, _OPT.OSCILLATING, Phase.ARCHITECTURE, "the loss is a sum over the batch"),
        "eval_mode": Symptom(_A, _ACT.ANOMALOUS, Phase.ARCHITECTURE, "the model trains in eval mode"),
        "nothing_trains": Symptom(_G, _GRAD.VANISHING, Phase.ARCHITECTURE, "nothing the optimizer holds can train"),
        "no_gradient": Symptom(_G, _GRAD.VANISHING, Phase.ARCHITECTURE, "no gradient ever reaches parameters"),
        "lost_gradient": Symptom(_G, _GRAD.VANISHING, Phase.ARCHITECTURE, "parameters get no gradient any more"),
        "lost_state": Symptom(_O, _OPT.SPIKE, Phase.ARCHITECTURE, "trained weights, an optimizer without a past"),
        # forward
        "nonfinite_activation": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "non-finite values in the output"),
        "dead_units": Symptom(_A, _ACT.DEAD, Phase.FORWARD, "units that are zero for every sample"),
        "stale_statistics": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "running statistics unlike the batches"),
        "saturation": Symptom(_A, _ACT.SATURATED, Phase.FORWARD, "a bounded activation at its limits"),
        "attention_onehot": Symptom(_A, _ACT.SATURATED, Phase.FORWARD, "attention on a single token"),
        "constant_output": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "the same output for every sample"),
        "signal_growth": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "activations grow with depth"),
        "recurrent_growth": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "the recurrent state grows over time"),
        "function_growth": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "a function makes large values far larger"),
        "scale_collapse": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "a learned scale goes to zero"),
        "activation_growth": Symptom(_A, _ACT.ANOMALOUS, Phase.FORWARD, "activations grow during training"),
        # loss
        "loss_nonfinite": Symptom(_O, _OPT.DIVERGING, Phase.LOSS, "the loss is not finite"),
        "loss_spike": Symptom(_O, _OPT.SPIKE, Phase.LOSS, "the loss jumps"),
        "loss_diverging": Symptom(_O, _OPT.DIVERGING, Phase.LOSS, "the loss grows"),
        "loss_oscillating": Symptom(_O, _OPT.OSCILLATING, Phase.LOSS, "the loss swings without falling"),
        "validation_rise": Symptom(
            _O, _OPT.DIVERGING, Phase.LOSS, "the validation loss rises, the training loss falls"
        ),
        "loss_plateau": Symptom(_O, _OPT.PLATEAU, Phase.LOSS, "the loss does not fall though above chance"),
        "slow_progress": Symptom(_O, _OPT.PLATEAU, Phase.LOSS, "the loss falls steadily but far too slowly"),
        # gradient
        "nonfinite_gradient": Symptom(_G, _GRAD.EXPLODING, Phase.GRADIENT, "non-finite gradients"),
        "vanishing_with_depth": Symptom(_G, _GRAD.VANISHING, Phase.GRADIENT, "the gradient shrinks with depth"),
        "vanishing_group": Symptom(_G, _GRAD.VANISHING, Phase.GRADIENT, "the gradient of one optimizer dies away"),
        "zero_gradient": Symptom(_G, _GRAD.VANISHING, Phase.GRADIENT, "the gradient is exactly zero"),
        "vanishing_gradient": Symptom(_G, _GRAD.VANISHING, Phase.GRADIENT, "the gradient falls under the floor"),
        "exploding_gradient": Symptom(_G, _GRAD.EXPLODING, Phase.GRADIENT, "the gradient grows by decades"),
        "saturated_gradient": Symptom(_G, _GRAD.SATURATED, Phase.GRADIENT, "the gradient stays high and flat"),
        "carried_gradient": Symptom(_O, _OPT.DIVERGING, Phase.GRADIENT, "a gradient already used is used again"),
        "unclipped_gradient": Symptom(_O, _OPT.SPIKE, Phase.GRADIENT, "clipping leaves out parameters"),
        # update
        "violent_update": Symptom(_O, _OPT.SPIKE, Phase.UPDATE, "an update as large as the weights"),
        "rate_jump": Symptom(_O, _OPT.SPIKE, Phase.UPDATE, "the learning rate jumps"),
        "outside_write": Symptom(_O, _OPT.SPIKE, Phase.UPDATE, "weights change by more than an optimizer step"),
        "stuck_parameter": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "parameters get gradient but never move"),
        "all_skipped": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "the scaler skips every step"),
        "rate_zero": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "the learning rate is zero"),
        "updates_stop": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "updates stop while gradients go on"),
        "nonfinite_weight": Symptom(_O, _OPT.DIVERGING, Phase.UPDATE, "weights turn non-finite"),
        "short_path": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "all updates together hardly move the weights"),
        "decay_outweighs": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "the gradient only makes up for weight decay"),
        "weights_shrink": Symptom(_O, _OPT.PLATEAU, Phase.UPDATE, "weight decay outweighs the gradient"),
    }
)

_DEFAULT_SYMPTOM: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("gradient_health_transition", "vanishing"): "vanishing_gradient",
        ("gradient_health_transition", "exploding"): "exploding_gradient",
        ("gradient_health_transition", "saturated"): "saturated_gradient",
        ("activation_regime_shift", "saturated"): "saturation",
        ("activation_regime_shift", "dead"): "dead_units",
        ("activation_regime_shift", "anomalous"): "activation_growth",
        ("optimizer_instability", "plateau"): "loss_plateau",
        ("optimizer_instability", "spike"): "loss_spike",
        ("optimizer_instability", "diverging"): "loss_diverging",
        ("optimizer_instability", "oscillating"): "loss_oscillating",
        ("data_anomaly", "nan"): "nan_input",
        ("data_anomaly", "inf"): "inf_input",
        ("data_anomaly", "shifted"): "input_shift",
        ("data_anomaly", "constant"): "zero_batch",
        ("data_anomaly", "unscaled"): "unscaled_input",
    }
)


@dataclass(frozen=True)
class SemanticEvent:
    """One transition of one layer, the loss, the optimizer or the data.

    `layer_name` is the module's name as in `named_modules()` ("" is the model itself; None: no module).
    `step` is 0-based; `step_range` is (first, last) where only a range is known or events were merged;
    `confidence` in [0, 1] says how sure the observation is, not the cause. `metadata` holds plain numbers.
    """

    event_type: EventType
    layer_name: str | None
    step: int
    from_state: str
    to_state: str
    confidence: float = 1.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    step_range: tuple[int, int] | None = None
    symptom: str = ""
    collapsed_count: int = 1

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "event_type", EventType(str(self.event_type)))
        except ValueError:
            known = ", ".join(EventType)
            raise ValueError(f"event_type {self.event_type!r} is unknown; use one of: {known}") from None
        if not self.symptom:
            key = (str(self.event_type), str(self.to_state))
            object.__setattr__(self, "symptom", _DEFAULT_SYMPTOM.get(key, ""))

    @property
    def phase(self) -> Phase:
        known = SYMPTOMS.get(self.symptom)
        return known.phase if known else Phase.FORWARD

    @property
    def text(self) -> str:
        """The symptom in plain words."""
        known = SYMPTOMS.get(self.symptom)
        return known.text if known else f"{self.from_state} -> {self.to_state}"

    @property
    def is_recovery(self) -> bool:
        return str(self.to_state) in HEALTHY_STATES

    @property
    def order(self) -> tuple[int, int]:
        """(step, phase): what came first."""
        return self.step, int(self.phase)


def observed(
    symptom: str,
    step: int,
    layer: str | None = None,
    confidence: float = 1.0,
    from_state: str | None = None,
    step_range: tuple[int, int] | None = None,
    **metadata: Any,
) -> SemanticEvent:
    """The event that a symptom means, as detectors report it.

    >>> observed("dead_units", 3, "fc1", share=0.9).to_state
    <ActivationHealth.DEAD: 'dead'>
    """
    kind = SYMPTOMS[symptom]
    return SemanticEvent(
        event_type=kind.event_type,
        layer_name=layer,
        step=step,
        from_state=from_state or NORMAL_STATE[kind.event_type],
        to_state=kind.to_state,
        confidence=confidence,
        metadata=metadata,
        step_range=step_range,
        symptom=symptom,
    )


def recovered(event: SemanticEvent, step: int) -> SemanticEvent:
    """The event that ends `event`."""
    return SemanticEvent(
        event_type=event.event_type,
        layer_name=event.layer_name,
        step=step,
        from_state=event.to_state,
        to_state=NORMAL_STATE[event.event_type],
        confidence=event.confidence,
        symptom=event.symptom,
    )
