"""Clipping misses parameters

What it is
    The gradient is clipped over fewer parameters than the optimizer steps: a part of the model, or a list that was
    made before a layer was replaced. The clipped part is held back; the rest takes its full gradient at a rate that
    was chosen for clipped ones, and its first large step ruins what both have learnt.

How it looks
    Between the end of backward and the optimizer's step, the gradients of some parameters are multiplied by one
    factor below one, to the same norm each time, and those of others, of a larger norm than that, are not touched. Then
    a step moves the others by the size of their own weights, as it would not under one clip over all; the loss jumps,
    diverges or is not finite, or units die.

What speaks against it
    A clip for each group of parameters with a limit of its own, a clip by value, a factor that is the same in every
    step (a scale, chosen on purpose), two models of which one is clipped, each with its own optimizer: none of them
    counts. A scaler's unscale and an average over ranks change all gradients alike. A part that is left out and does
    no harm (a recurrent layer alone is often clipped on purpose; Adam divides a large gradient away) is a note.

What to do
    Clip what the optimizer steps, listed anew where a layer may have been replaced:
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)

Reference
    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import ABOVE, BLOW_UP, FOREVER, NONFINITE, STARVED, lasting, units_die, value
from neuraldbg.run import Run

SOON = 20  # steps from a step of the size of the weights to a loss that it ruins; momentum carries it on for some
LATER = 60  # steps to the units that it ruins, as after a rate that is too high
PINNED = 0.7  # of a bounded layer at its limits; healthy hidden layers have 0.09

PREDICTS = {**BLOW_UP, **STARVED, "loss_spike": FOREVER, "dead_units": FOREVER, "saturation": FOREVER}
WITHIN = {"loss_spike": SOON, "exploding_gradient": SOON, **dict.fromkeys(NONFINITE, SOON)}
WITHIN |= {"dead_units": LATER, "saturation": LATER, "constant_output": LATER}
AT_THE_END = ("loss_diverging", "loss_plateau", "loss_oscillating")


def clipping_misses_parameters(run: Run) -> Iterator[Claim]:
    missed = run.first("unclipped_gradient")
    if missed is None:
        return
    thrown = tuple(e for e in run.all("unclipped_gradient") if value(e, "thrown", -1.0) >= 0)
    throws = [int(value(e, "thrown", 0.0)) for e in thrown]
    harm = _harm(run, throws)
    yield Claim(
        cause="clipping_misses_parameters",
        failure_type="exploding_gradients" if any(e.symptom in NONFINITE for e in harm) else "optimizer_instability",
        layer_name=missed.layer_name,
        step=missed.step,
        predicts=PREDICTS,
        evidence_for=(missed, *(e for e in thrown if e is not missed), *harm),
        remedy="clip all that the optimizer steps: clip_grad_norm_([p for g in optimizer.param_groups"
        ' for p in g["params"]], limit), and make that list anew when a layer is replaced',
        summary=_summary(missed),
        refuted_by="the same run with all parameters clipped that ends the same way",
        exact=True,
        outcome=bool(harm) or _jumps(run, throws),
    )


def _harm(run: Run, throws: Sequence[int]) -> tuple[SemanticEvent, ...]:
    """What steps of the size of the weights ruin: the loss or units at once, or the training for good."""
    if not throws:
        return ()
    soon = (e for e in run.all(*WITHIN) if any(0 <= e.step - s <= WITHIN[e.symptom] for s in throws))
    return (*(e for e in soon if _hurts(run, e)), *lasting(run, *AT_THE_END, since=throws[0]))


def _jumps(run: Run, throws: Sequence[int]) -> bool:
    """A loss far above chance right after one; where it jumped a step before, too, that jump is the event."""
    return any(v > ABOVE for s, v in run.get("skill").points for t in throws if 0 < s - t <= SOON)


def _hurts(run: Run, event: SemanticEvent) -> bool:
    if event.symptom == "loss_spike":
        first = run.get("loss").head(1)
        known = event.metadata.get("over_chance") is not None
        return value(event, "over_chance", 0.0) > 1 if known else value(event, "height", 0.0) > (first or 0.0)
    if event.symptom == "dead_units":
        return units_die(event)
    if event.symptom == "saturation":
        return event.metadata.get("at_start") is not True and value(event, "share", 0.0) > PINNED
    return not (event.metadata.get("absolute") or event.metadata.get("at_start"))


def _summary(missed: SemanticEvent) -> str:
    limit, norm = value(missed, "limit", 0.0), value(missed, "norm", 0.0)
    share = value(missed, "share", 0.0)
    if not limit or not norm or not share:
        return "the clip does not reach all parameters that the optimizer steps"
    return f"{share:.0%} of the parameters are not clipped: a gradient of norm {norm:.2g} beside a limit of {limit:.2g}"
