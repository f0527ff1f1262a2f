"""Numerical operation, forward

What it is
    An operation leaves its domain or range in the forward pass: exp overflows, log or sqrt gets a negative number,
    a power grows past the largest float.

How it looks
    The first non-finite value is in the output of a module whose inputs and weights are finite; infinities or very
    large finite values are beside it. Or, short of that, an activation makes its largest values ten times as large
    and more, and the loss starts far above chance or jumps there again and again.

What speaks against it
    Gradients or activations that grew over the steps before: then the value is the end of an explosion. NaN out of
    moderate values is a division by zero. NaN in the data.

What to do
    Keep the argument in range: torch.log(x.clamp_min(1e-8)), torch.logsumexp(x, -1) instead of exp and sum

Reference
    Goodfellow, Bengio, Courville, "Deep Learning", 2016, section 4.1 (overflow and underflow).
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import ABOVE, BLOW_UP, FOREVER, late_start, loss_ruined, value
from neuraldbg.rules._nonfinite import PREDICTS, attention_row, divides, first_forward, half, where
from neuraldbg.run import Run

REMEDY = "keep the argument in its range (clamp, logsumexp, softplus), or use an activation that cannot overflow"

AGAIN = 2  # jumps far outside the loss's own noise; a single one may be one batch
USUAL_LG = 0.6  # decades by which a squared rectifier, the steepest in use, makes its largest value larger


def numerical_op_forward(run: Run) -> Iterator[Claim]:
    bad = first_forward(run)
    if bad is None:
        yield from _steep(run)
        return
    if bad.metadata.get("inputs_finite") is False or attention_row(run, bad) or divides(bad):
        return
    if half(bad):
        return  # a float32 run would be finite: the format is to blame
    steep = run.first("function_growth", layer=bad.layer_name, before=bad)  # the overflow was only a matter of time
    yield Claim(
        cause="numerical_op_forward",
        failure_type="exploding_gradients",
        layer_name=bad.layer_name,
        step=steep.step if steep else bad.step,
        predicts=PREDICTS,
        evidence_for=(*((steep,) if steep else ()), bad, *run.all("loss_nonfinite")),
        remedy=REMEDY,
        summary=where(bad) + f"inputs are finite{_largest(bad)}",
        refuted_by="an input to this module that was not finite before",
        exact=True,
    )


def _steep(run: Run) -> Iterator[Claim]:
    """No overflow by itself, but a function that makes large values far larger and ruins the loss by that."""
    steep = run.first("function_growth")
    if steep is None:
        return
    spikes = [e for e in run.all("loss_spike") if e.step >= steep.step]
    again = run.skill is None and len(spikes) >= AGAIN  # of a loss whose chance is unknown
    jumps = tuple(e for e in spikes if again or value(e, "over_chance", 0.0) > ABOVE)
    harm = (*loss_ruined(run), *jumps[:3])
    if not harm and not late_start(run):
        return
    gain = value(steep, "gain_lg", 1.0)
    yield Claim(
        cause="numerical_op_forward",
        failure_type="exploding_gradients",
        layer_name=steep.layer_name,
        step=steep.step,
        predicts={**BLOW_UP, "loss_spike": FOREVER, "loss_plateau": FOREVER, "dead_units": FOREVER},
        evidence_for=(steep, *(e for e in harm if e.order >= steep.order)),
        remedy=REMEDY,
        summary=f"its largest output is {10**gain:.3g} times its largest input",
        refuted_by="the same training with relu or tanh in its place that ends the same way",
        strength=min(1.0, gain - USUAL_LG),
    )


def _largest(bad: SemanticEvent) -> str:
    return f", the largest finite value is {value(bad, 'largest', 0.0):.3g}" if bad.metadata.get("largest") else ""
