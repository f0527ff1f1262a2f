"""All wording: what a failure is called, what a cause is in words, how a number and a confidence read.

Names come from users' models and may hold anything; `clean` makes one printable line of them, and each
format (HTML, SVG, Mermaid, Markdown) escapes on top of that.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from neuraldbg.diagnosis import CausalHypothesis, Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.record import Coverage, RunFacts

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "learning_rate_too_high": "a learning rate that is too high",
        "learning_rate_too_low": "a learning rate that is too low",
        "warmup_missing": "missing warm-up: the first steps are taken at the full rate",
        "schedule_jump": "a jump of the learning rate",
        "weight_decay_too_high": "weight decay that outweighs the gradient",
        "missing_zero_grad": "a missing zero_grad(): gradients add up over the steps",
        "loss_scale": "a loss that is summed or accumulated without dividing by the count",
        "optimizer_misses_parameters": "parameters that the optimizer was not given",
        "clipping_misses_parameters": "parameters that escape gradient clipping",
        "gradient_ascent": "a loss of the wrong sign: it is maximised",
        "bootstrap_divergence": "targets that the model computes itself and that run away",
        "half_precision_overflow": "values beyond the range of half precision",
        "half_precision_underflow": "values too small for half precision",
        "bad_initialisation": "badly scaled initial weights",
        "saturating_activations_deep": "many saturating activations in a row, each of which shrinks the gradient",
        "unbounded_preactivation": "pre-activations of a bounded function that keep growing",
        "dead_relu_negative_bias": "a bias that keeps rectified units below zero for every sample",
        "wrong_output_activation": "an output activation that cannot produce the targets",
        "double_softmax": "a softmax applied twice: once in the model, once in the loss",
        "wrong_loss": "a loss that does not fit the targets",
        "attention_logits_scale": "attention scores that are not scaled",
        "residual_growth_without_norm": "a residual stream that grows with depth and is never normalised",
        "recurrent_explosion": "a recurrent map with a gain above one",
        "recurrent_vanishing": "a recurrent map that forgets the early steps",
        "normalisation_over_one_feature": "a normalisation over a single value, which erases the signal",
        "zero_initialised_factors": "two factors that both start at zero and block each other",
        "discriminator_saturation": "a discriminator that wins and leaves the generator no gradient",
        "variance_collapse": "a learned scale that goes to zero",
        "detached_graph": "a part of the model that is cut off from the loss",
        "frozen_parameters": "parameters that should train but do not require gradients",
        "eval_mode_during_training": "training in eval mode",
        "numerical_op_forward": "an operation that leaves its domain or range in the forward pass",
        "numerical_op_backward": "an operation whose derivative is not finite",
        "division_by_zero": "a division by zero",
        "attention_mask_all_inf": "an attention row with every position masked",
        "nan_in_input": "NaN in the training data",
        "inf_in_input": "infinite values in the training data",
        "input_distribution_shift": "inputs that change during training",
        "unnormalised_inputs": "inputs that are not normalised",
        "missing_value_sentinel": "a missing-value code that is read as a number",
        "zeroed_inputs": "batches that arrive as zeros",
        "duplicated_batches": "the same samples again and again",
        "label_error": "wrong labels",
        "target_outlier": "one extreme target",
        "overfitting": "overfitting: the model learns the training samples by heart",
        "stale_statistics": "running statistics of a batch norm that have not caught up with the training",
        "representation_collapse": "a loss that is least when every sample gets the same output",
        "too_few_steps": "a training that ended while it was still learning",
        "batch_too_small": "batches so small that noise outweighs the gradient",
        "model_too_small": "a model too small for the task",
        "label_noise": "labels that contradict each other, or inputs that do not tell them apart",
        "unknown": "none of the known causes explains it",
    }
)

# {in} becomes " in layer 'x'" (or nothing), {of} " of layer 'x'", {to} "input to layer 'x'" or "the model's input".
_BY_FAILURE: Mapping[str, str] = MappingProxyType(
    {
        "vanishing_gradients": "Gradient vanishing originated{in}",
        "exploding_gradients": "Gradient explosion originated{in}",
        "dead_neurons": "Neuron death detected{in}",
        "saturated_activations": "Activation saturation detected{in}",
        "optimizer_instability": "Optimizer instability detected{in}",
        "data_anomaly": "Data anomaly detected{in}",
    }
)

_BY_SYMPTOM: Mapping[str, str] = MappingProxyType(
    {
        "nan_input": "NaN values detected in {to}",
        "inf_input": "Infinite values detected in {to}",
        "input_shift": "Input distribution shift detected in {to}",
        "input_sentinel": "One far-out value repeated in {to}",
        "zero_batch": "A batch of zeros detected in {to}",
        "repeated_batch": "Repeated batches detected in {to}",
        "unscaled_input": "Inputs of large scale or offset detected in {to}",
        "unscaled_target": "Targets of large scale detected",
        "target_outlier": "A target far outside the others detected",
        "target_shift": "Targets of another scale than before detected",
        "negated_loss": "A backward pass from the negated loss detected",
        "small_weights": "A signal that shrinks from layer to layer originated{in}",
        "large_weights": "A signal that grows from layer to layer originated{in}",
        "negative_bias": "A bias that outweighs the signal detected{in}",
        "identical_units": "Identical units detected{in}",
        "zero_factors": "Two zero factors in a row detected{in}",
        "norm_over_one": "A norm over a single value detected{in}",
        "softmax_over_one": "A softmax over a single value detected{in}",
        "double_softmax": "Probabilities where the loss expects logits detected{in}",
        "output_range": "An output that cannot reach the targets detected{in}",
        "target_range": "Targets outside the range of the loss detected",
        "summed_loss": "A loss summed over the batch detected",
        "eval_mode": "Training in eval mode detected{in}",
        "nothing_trains": "Parameters that cannot train detected{in}",
        "no_gradient": "A missing gradient detected{in}",
        "nonfinite_activation": "Non-finite values originated in the output{of}",
        "dead_units": "Neuron death detected{in}",
        "saturation": "Activation saturation detected{in}",
        "attention_onehot": "Attention on a single token detected{in}",
        "constant_output": "The same output for every sample detected{in}",
        "signal_growth": "Activation growth with depth originated{in}",
        "recurrent_growth": "Growth of the recurrent state originated{in}",
        "activation_growth": "Activation growth originated{in}",
        "loss_nonfinite": "A non-finite loss detected",
        "loss_spike": "Loss spike detected",
        "loss_diverging": "Loss divergence detected",
        "loss_oscillating": "Loss oscillation detected",
        "loss_plateau": "Loss plateau detected",
        "slow_progress": "Slow progress detected",
        "nonfinite_gradient": "Non-finite gradients originated{in}",
        "vanishing_with_depth": "Gradient vanishing originated{in}",
        "vanishing_group": "Gradient vanishing in one optimizer's parameters originated{in}",
        "zero_gradient": "A gradient of exactly zero originated{in}",
        "vanishing_gradient": "Gradient vanishing originated{in}",
        "exploding_gradient": "Gradient explosion originated{in}",
        "saturated_gradient": "Gradient saturation originated{in}",
        "carried_gradient": "Accumulating gradients detected{in}",
        "unclipped_gradient": "A gradient beyond the reach of clipping detected{in}",
        "violent_update": "Updates as large as the weights detected{in}",
        "rate_jump": "A jump of the learning rate detected",
        "decay_outweighs": "Weight decay stronger than the gradient detected",
        "short_path": "Weights that hardly move detected",
        "scale_collapse": "A scale that goes to zero detected{in}",
        "outside_write": "Weights that changed by more than an optimizer step detected",
        "stuck_parameter": "Parameters that never move detected{in}",
        "stale_statistics": "Running statistics unlike those of the batches detected{in}",
        "function_growth": "A function that makes large values far larger detected{in}",
        "lost_gradient": "A gradient that no longer comes detected{in}",
        "recurrent_decay": "A recurrent map that forgets its state detected{in}",
        "all_skipped": "A scaler that skips every step detected",
        "rate_zero": "A learning rate of zero detected",
        "lost_state": "An optimizer without a past on trained weights detected",
        "validation_rise": "A rising validation loss detected",
        "updates_stop": "A stop of all updates detected",
        "nonfinite_weight": "Non-finite weights originated{in}",
        "weights_shrink": "Shrinking weights detected{in}",
    }
)


def clean(text: object, limit: int = 300) -> str:
    """One printable line: control, format and surrogate characters become spaces, the rest stays.

    >>> clean("a\\nb\\x1b[31m")
    'a b [31m'
    """
    kept = "".join(" " if unicodedata.category(c).startswith("C") else c for c in str(text))
    line = " ".join(kept.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def layer(name: str | None) -> str:
    """A module's name as people read it: the model itself has the empty name.

    >>> layer("fc1"), layer("")
    ("layer 'fc1'", 'the model')
    """
    if name is None:
        return ""
    return f"layer '{clean(name, 120)}'" if name else "the model"


def cause_words(cause: str) -> str:
    """A cause in words; one that a plug-in brings is read from its slug."""
    return CAUSES.get(cause) or clean(cause).replace("_", " ")


def describe(claim: Claim, root: SemanticEvent | None) -> str:
    """The hypothesis as one sentence: what was seen first, where, since when, and the likely cause.

    >>> describe(Claim("schedule_jump", "optimizer_instability", None, 50), None)
    'Optimizer instability detected at step 50, likely due to a jump of the learning rate'
    """
    number = clean(claim.summary, 240).rstrip(". ")
    if claim.advice:  # nothing was detected: no symptom to open with
        return f"Perhaps {cause_words(claim.cause)}{_on(claim)}" + (f" ({number})" if number else "")
    root = root or claim.root
    seen_at, since = claim.step, ""
    spike = _spike_after(claim, root)
    if spike is not None:
        root, seen_at, since = spike, spike.step, f" at step {claim.step}"
    where = layer(claim.layer_name)
    template = _BY_SYMPTOM.get(root.symptom) if root else None
    template = template or _BY_FAILURE.get(claim.failure_type, clean(claim.failure_type).replace("_", " ") + "{in}")
    seen = template.format_map(
        {
            "in": f" in {where}" if where else "",
            "of": f" of {where}" if where else "",
            "to": _input(claim, root),
        }
    )
    if where and where not in seen:
        seen += f" ({where})"
    sentence = f"{seen} at step {seen_at}{_onset(root, seen_at)}"
    if claim.cause == "unknown":
        sentence += f"; {cause_words(claim.cause)}"
    else:
        sentence += f", likely due to {cause_words(claim.cause)}{since}"
    return f"{sentence} ({number})" if number else sentence


def _on(claim: Claim) -> str:
    return f" in {layer(claim.layer_name)}" if claim.layer_name is not None else ""


def _spike_after(claim: Claim, root: SemanticEvent | None) -> SemanticEvent | None:
    """The loss spike that people saw, where the root is what the optimizer did to bring it about."""
    if root is None or root.symptom not in ("rate_jump", "violent_update"):
        return None
    if claim.failure_type != "optimizer_instability":
        return None
    spikes = [e for e in claim.evidence_for if e.symptom == "loss_spike" and e.step >= claim.step]
    return min(spikes, key=lambda e: e.order, default=None)


def _input(claim: Claim, root: SemanticEvent | None) -> str:
    """Bad data has no layer to blame; the layer that it enters (where the event knows it) says which input is meant."""
    name = claim.layer_name or (root.layer_name or root.metadata.get("enters") if root else None)
    return f"input to {layer(str(name))}" if name else "the model's input"


def _onset(root: SemanticEvent | None, step: int) -> str:
    """After a gap in the recording only a range is known; merged events have a range too, which is no gap."""
    if root is None or root.step_range is None or root.collapsed_count > 1:
        return ""
    first, last = root.step_range
    return f" (it began between steps {first} and {last})" if first < last and first <= step <= last else ""


def evidence(event: SemanticEvent) -> str:
    """One observation: what, where, since when, and its numbers with the baseline they are compared to."""
    where = layer(event.layer_name)
    place = f" in {where}" if where else ""
    first, last = event.step_range or (event.step, event.step)
    when = f"step {first}" if first == last else f"steps {first} to {last}"
    text = f"{event.text}{place} at {when}" if first == last else f"{event.text}{place} in {when}"
    if event.is_recovery:
        text = f"back to {event.to_state}{place} at {when}"
    details = numbers(event.metadata)
    return clean(f"{text} ({details})" if details else text)


_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "share": "share",
        "rms": "RMS",
        "z": "deviations",
        "update_lg": "update / weight",
        "gain_lg": "gain per layer",
        "slope": "per layer",
        "before": "before",
        "after": "after",
        "baseline": "healthy baseline",
        "tail_head": "last loss / first loss",
        "skill": "loss / chance",
        "at_start": "from the start",
        "over_chance": "loss / chance",
        "before_over_chance": "loss / chance before",
    }
)
_PERCENT = frozenset({"share", "covered", "nan_share", "inf_share"})
_BORING = frozenset({"position", "since", "enters"})  # for rules, not for readers
_FIRST = ("rms", "baseline", "share", "before", "after")  # a value and what it is compared to stand together


def numbers(metadata: Mapping[str, Any], limit: int = 4) -> str:
    """The numbers of an event in reading order; what is unknown or empty is left out.

    >>> numbers({"share": 0.9, "position": "hidden", "growth_lg": 3.0})
    'share 90 %, growth 1e+03'
    """
    keys = [k for k in _FIRST if k in metadata] + [k for k in metadata if k not in _FIRST]
    parts = []
    for key in keys:
        value = metadata[key]
        if (
            key in _BORING
            or value is None
            or value is False
            or value == ""
            or (isinstance(value, (tuple, list, dict)) and not value)
        ):
            continue
        parts.append(_number(str(key), value))
    return ", ".join(parts[:limit])


def _number(key: str, value: Any) -> str:
    name = _LABELS.get(key, clean(key.removesuffix("_lg"), 40).replace("_", " "))
    if value is True:
        return name
    if not isinstance(value, (int, float)):
        shown = (
            ", ".join(clean(v, 30) for v in list(value)[:4]) if isinstance(value, (tuple, list)) else clean(value, 60)
        )
        return f"{name} {shown}"
    if key in _PERCENT and math.isfinite(value):
        return f"{name} {100 * value:.3g} %"
    if key.endswith("_lg") and abs(value) < 300:
        return f"{name} {figure(10.0**value)}"
    return f"{name} {figure(value)}"


def figure(value: float) -> str:
    """A number with three digits.

    >>> figure(1234.5678), figure(7), figure(1.5e-9)
    ('1.23e+03', '7', '1.5e-09')
    """
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def confidence_words(confidence: float) -> str:
    """How sure, in a word: a bare percentage reads as more than it is."""
    for bound, word in ((0.85, "high"), (0.6, "fair"), (0.35, "low")):
        if confidence >= bound:
            return word
    return "very low"


def confidence(hypothesis: CausalHypothesis) -> str:
    """Confidence in a word and a number; one without a calibration entry says so."""
    text = f"{confidence_words(hypothesis.confidence)} ({hypothesis.confidence:.2f})"
    return f"{text}, uncalibrated" if hypothesis.metadata.get("calibrated") is False else text


_PLACES: Mapping[str, str] = MappingProxyType(
    {
        "backward": " in the backward pass",
        "optimizer": " in an optimizer step",
        "loop": " in the training loop, outside of any forward or backward pass",
    }
)


def exception(facts: RunFacts) -> str:
    """What the user's code raised and where, as far as that is known; empty where nothing was raised."""
    name = facts.exception_layer
    where = _PLACES.get(facts.exception_place, "")
    if name is not None:
        where = f" in {layer(name)}" if name else " in the model's own forward"
    return clean(facts.exception) + where if facts.exception else ""


NOTHING_SEEN = "Nothing was seen of a training, so whether it is healthy is not known"


def why_nothing(facts: RunFacts) -> str:
    """Why a session may have seen nothing: it was off, was never entered, or its model is not the one that trained."""
    if not facts.models:
        return not_looked_at(facts.coverage) or "no model was entered; train it inside: with NeuralDbg(model):"
    return (
        "no forward pass with gradients, backward pass or optimizer step of the watched model came by:"
        " a copy of it was trained, or another model, or it was trained before or after the session, or not at all"
    )


def looked_at(coverage: Coverage, steps: int) -> str:
    """What was looked at, in one line; numbers that nobody measured are left out."""
    parts = [
        f"{seen} of {total} {what}"
        for seen, total, what in (
            (coverage.parameters_seen, coverage.parameters, "parameters"),
            (coverage.modules_seen, coverage.modules, "modules"),
            (coverage.steps_sampled, max(coverage.steps, steps), "steps"),
        )
        if total
    ]
    if not parts:
        return "nothing yet"
    text = ", ".join(parts) + f" ({clean(coverage.mode, 40)})"
    return text if coverage.share is None else f"{text}; watching took {100 * coverage.share:.2g} % of the time"


def not_looked_at(coverage: Coverage) -> str:
    """The blind spots in one line; empty where there are none."""
    return "; ".join(sentence.rstrip(".") for sentence in map(clean, coverage.notes) if sentence)


def listed(items: Iterable[str], limit: int) -> str:
    """The first few, and how many there are beyond.

    >>> listed(["a", "b", "c"], 2)
    'a; b; and 1 more'
    """
    every = list(items)
    rest = len(every) - limit
    return "; ".join(every[:limit]) + (f"; and {rest} more" if rest > 0 else "")
