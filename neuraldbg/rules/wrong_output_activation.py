"""Wrong output activation

What it is
    The last activation cannot produce the targets or cuts the gradient: a softmax over one unit is the constant
    one, a ReLU cannot be negative and dies, a sigmoid ends at one.

How it looks
    A softmax of width one with a gradient of exactly zero; output units of a ReLU that are zero for every sample;
    targets that the range of the last activation does not reach, with a fifth of the loss left at the end; scores
    of a loss on logits that end in a sigmoid, tanh or ReLU: it then stays above a floor that can be computed.

What speaks against it
    Targets within the range, and output units that are active for some sample; a loss that falls to nothing.

What to do
    End in the raw score and let the loss do the rest: torch.nn.BCEWithLogitsLoss()(logits, targets)

Reference
    Stack Overflow questions 31880720, 47352366 and 48251943.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import STARVED, follows, lasting, not_learning, value
from neuraldbg.run import Run

DEAD = 0.15  # one of six classes that can never be predicted again is a failure; a wide output is none
COVERED = 0.9  # of the targets' range; below it the loss cannot reach its floor
HALF = 0.6  # of the range: where less is within reach the missing part carries much of the loss
LEFT = 0.2  # of chance: a ReLU on symmetric targets leaves 0.5, a tanh on standardised ones 0.15 at the very least
FLOOR = 0.2  # of chance, by the detector's own mark: a floor is arithmetic, no estimate

PREDICTS = {**STARVED, "saturation": 500, "dead_units": 500, "stuck_parameter": 500}
REMEDY = (
    "end in the raw score and use the loss for logits (BCEWithLogitsLoss, CrossEntropyLoss), or no activation at all"
)


def wrong_output_activation(run: Run) -> Iterator[Claim]:
    single = run.first("softmax_over_one")
    if single is not None:
        cut = (*lasting(run, "zero_gradient", "constant_output"), *lasting(run, "loss_plateau"))
        if cut:
            yield _claim(single, cut, "vanishing_gradients", "a softmax over one value is the constant one", True, None)
        return
    reach = next((e for e in lasting(run, "output_range") if _harmful(run, e)), None)
    if reach is not None:
        dead, covered, floor = value(reach, "dead", 0.0), value(reach, "covered", 1.0), value(reach, "floor", 0.0)
        if floor >= FLOOR and (run.skill is None or run.skill > floor / 1.1):  # below it: scaled behind the activation
            yield _bounded_scores(run, reach, floor)
            return
        silent = tuple(e for e in lasting(run, "dead_units") if e.layer_name == reach.layer_name)
        lost = dead > DEAD or bool(silent)
        harmed = (*silent, *lasting(run, "zero_gradient", "loss_plateau"))
        limited = covered < HALF and (run.skill or 0.0) > LEFT
        if lost or limited or (covered < COVERED and not_learning(run)):
            kind = "dead_neurons" if lost or not _bounded(run, reach) else "saturated_activations"
            summary = (
                f"{dead:.0%} of the output units are zero for every sample"
                if dead > DEAD
                else f"it covers {covered:.0%} of the targets"
            )
            yield _claim(reach, harmed, kind, summary, False, max(dead, 1 - covered))
        return
    for dead_output in lasting(run, "dead_units"):
        share = value(dead_output, "share", 0.0)
        if dead_output.metadata.get("position") == "output" and share > DEAD:
            harmed = follows(run, dead_output, STARVED)
            yield _claim(
                dead_output,
                harmed,
                "dead_neurons",
                f"{share:.0%} of the output units are zero for every sample",
                False,
                share,
            )
            return


def _harmful(run: Run, reach: SemanticEvent) -> bool:
    """Scores that never came near their limits do harm where the loss stays at chance: a sigmoid takes three quarters
    of each gradient, and more at its ends."""
    return reach.metadata.get("pushed") is not False or next(lasting(run, "loss_plateau"), None) is not None


def _bounded_scores(run: Run, reach: SemanticEvent, floor: float) -> Claim:
    """A loss on logits whose scores are confined: how low it can get is known."""
    kind = "saturated_activations" if _bounded(run, reach) else "dead_neurons"
    harmed = tuple(lasting(run, "saturation", "dead_units", "loss_plateau"))
    summary = f"with scores in its range the loss cannot fall below {floor:.0%} of chance"
    return _claim(reach, harmed, kind, summary, True, None)


def _bounded(run: Run, event: SemanticEvent) -> bool:
    module = run.facts.module(event.layer_name)
    return module is not None and module.activation in ("sigmoid", "tanh", "softmax")


def _claim(
    root: SemanticEvent,
    harmed: tuple[SemanticEvent, ...],
    failure: str,
    summary: str,
    exact: bool,
    strength: float | None,
) -> Claim:
    return Claim(
        cause="wrong_output_activation",
        failure_type=failure,
        layer_name=root.layer_name,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=(root, *harmed),
        remedy=REMEDY,
        summary=summary,
        refuted_by="outputs that reach every target",
        exact=exact,
        strength=strength,
    )
