"""Bad initialisation

What it is
    The weights start too small, too large or alike. Signals shrink or grow by the same factor in every layer, or a
    layer is silent for every input before the first update.

How it looks
    At step 0 the signal changes by a decade per layer; or a hidden layer has no active unit at all although no
    bias and no input offset explains it. The loss stays at chance. Or the gradient falls fivefold or more from layer
    to layer, from the first steps on, though no activation is bounded; the loss may leave chance late, when the
    weights have grown. Or all units of most layers start with the same weights.

What speaks against it
    A residual branch that starts at zero on purpose; a loss that falls; inputs of a scale or offset that does the
    same to any weights; bounded activations, which shrink the gradient with good weights too; depth in time, of a
    recurrent layer.

What to do
    Scale by the fan-in: torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

Reference
    He et al., "Delving Deep into Rectifiers", 2015; Glorot, Bengio, 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, lasting, late_start, not_learning, value
from neuraldbg.run import Run

ALL_DEAD = 0.9  # of a hidden layer before any update: nothing passes; healthy runs have 0.42 at most
USUAL_LG = 0.75  # decades that a healthy layer changes the signal by, at most
SLOPE = 0.7  # decades of gradient per layer; healthy nets reach 0.64 (evidence of labelled runs)
LEARNT = 0.1  # of chance: where the loss ends below, the units have parted in time
HALF = 0.5  # of chance at the end; nets of a usual start learn more than half of it
DROWNED, LAYERS = 0.4, 3  # of a layer's units dead before any update; one healthy layer has 0.42, never three
GROWTH = 0.6  # decades by the steepest single layer of a stack in which depth adds up to 1.5 and more
OFFSET = 7.5  # mean / standard deviation of the inputs, beyond which the inputs explain dead units

PREDICTS = {**STARVED, **BLOW_UP, "dead_units": 60, "saturation": 60, "signal_growth": 60, "attention_onehot": 60}
REMEDY = "initialise by the fan-in (torch.nn.init.kaiming_normal_ for ReLU, xavier_uniform_ for tanh)"


def bad_initialisation(run: Run) -> Iterator[Claim]:
    equal = run.first("identical_units")
    if equal is not None and value(equal, "layers", 0.0) > 0 and not (run.skill is not None and run.skill < LEARNT):
        yield _alike(run, equal)
        return
    if not not_learning(run) and not late_start(run) and not _drowned(run):
        return
    small, alike = run.first("small_weights"), run.first("identical_units")
    if small is not None:
        gain = abs(value(small, "gain_lg", 1.0))
        summary = f"the signal shrinks {10**gain:.3g}-fold per layer"
        yield _claim(run, small, "vanishing_gradients", summary, max(0.0, gain - USUAL_LG))
    elif (starved := _starved(run)) is not None:
        slope = value(starved, "slope", SLOPE)
        yield _claim(
            run, starved, "vanishing_gradients", f"the gradient falls {10**slope:.3g}-fold per layer", slope - SLOPE
        )
    elif (large := _large(run)) is not None:
        gain = value(large, "gain_lg", 1.0)
        yield _claim(
            run, large, "exploding_gradients", f"the signal grows {10**gain:.3g}-fold per layer", gain - USUAL_LG
        )
    elif (dead := _silent(run)) is not None:
        yield _claim(run, dead, "dead_neurons", "no unit of this layer is active before the first update", 0.6)
    elif alike is not None:
        yield _claim(run, alike, "optimizer_instability", "units that start equal stay equal", 0.3)


def _alike(run: Run, equal: SemanticEvent) -> Claim:
    """Weights were compared before the first update: each of these layers starts as one unit, repeated."""
    summary = f"all units of {value(equal, 'layers', 1.0):.0f} layers start with the same weights"
    return replace(_claim(run, equal, "optimizer_instability", summary, 0.3), exact=True, strength=None)


def _starved(run: Run) -> SemanticEvent | None:
    """The gradient shrinks with depth from the start though no activation is bounded: the weights do it."""
    event = run.first("vanishing_with_depth")
    if event is None or event.step > 2 or value(event, "bounded_layers", 0.0) > 0 or value(event, "slope", 0.0) < SLOPE:
        return None
    other = ("norm_over_one", "softmax_over_one", "negative_bias", "unscaled_input", "output_range", "zero_factors")
    return None if run.has(*other) or "recurrent" in run.facts.structure else event


def _drowned(run: Run) -> bool:
    """A gradient that falls with depth, units dead in layer after layer for the bias alone, and half of chance left.

    Weights that are too small leave only the biases: those decide which units are on, the same for every sample.
    """
    silent = [e for e in run.all("dead_units") if value(e, "at_start", 0.0) >= DROWNED]
    unlearnt = run.skill is not None and run.skill > HALF
    return unlearnt and len({e.layer_name for e in silent}) >= LAYERS and _starved(run) is not None


def _large(run: Run) -> SemanticEvent | None:
    """Growth by the weights; residual sums and a function that overflows at once are causes of their own."""
    large = run.first("large_weights") or next(filter(_stacked, run.all("signal_growth")), None)
    if large is None or run.has("recurrent_growth", "function_growth") or "residual" in run.facts.structure:
        return None
    bad = run.first("nonfinite_activation")
    module = run.facts.module(bad.layer_name) if bad is not None and bad.step == 0 else None
    return None if module is not None and module.parameters == 0 else large


def _stacked(growth: SemanticEvent) -> bool:
    """Growth with depth that the weight layers make, each a part of it, in a plain stack."""
    if growth.metadata.get("residual") is True or value(growth, "gain_lg", 0.0) < GROWTH:
        return False
    return value(growth, "weights_lg", 0.0) >= value(growth, "depth_lg", 1.5)


def _silent(run: Run) -> SemanticEvent | None:
    offset = max((value(e, "offset", 0.0) for e in run.all("unscaled_input")), default=0.0)
    if run.has("negative_bias") or offset > OFFSET:
        return None
    for dead in lasting(run, "dead_units", within=5):
        position = dead.metadata.get("position", "hidden")
        if position != "output" and value(dead, "at_start", 0.0) >= ALL_DEAD:
            return dead
    return None


def _claim(run: Run, root: SemanticEvent, failure: str, summary: str, strength: float) -> Claim:
    return Claim(
        cause="bad_initialisation",
        failure_type=failure,
        layer_name=root.layer_name,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=(root, *follows(run, root, STARVED)[:3], *lasting(run, "loss_diverging", "loss_nonfinite")),
        remedy=REMEDY,
        summary=summary,
        refuted_by="another seed or a scaled initialisation that ends the same way",
        strength=max(0.0, strength),
    )
