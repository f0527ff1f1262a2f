"""Schedule jump

What it is
    The learning rate changes by a jump: a scheduler stepped in the wrong unit, a resumed run that lost its
    schedule, a restart. The updates that follow are far too large for trained weights.

How it looks
    The rate of a parameter group rises more than tenfold within one step; in the same step or the next the update,
    the gradient and the loss jump, and rectified units may die for good. Or the run starts on trained weights, its
    optimizer's own counter says that it has no past, and the loss jumps from where the weights had brought it.

What speaks against it
    The start of a warm-up, the restart of a cycle that was seen before, and a jump that nothing follows.

What to do
    Print the schedule before training: print([group["lr"] for group in optimizer.param_groups]) at each step.

Reference
    PyTorch documentation, "How to adjust learning rate": scheduler.step() once per epoch or per batch, not both.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, STARVED, follows, value
from neuraldbg.run import Run

SOON = 5  # steps: the loss follows one step after, units that die two or three

PREDICTS = {**BLOW_UP, **STARVED, "loss_spike": SOON, "dead_units": 50, "violent_update": SOON, "saturation": 50}
HARM = {
    "loss_spike": SOON,
    "violent_update": SOON,
    "dead_units": 20,
    "saturation": 20,
    "exploding_gradient": SOON,
    "loss_diverging": 50,
    "loss_plateau": 50,
    "nonfinite_activation": 50,
    "nonfinite_gradient": 50,
    "nonfinite_weight": 50,
    "loss_nonfinite": 50,
}


ABOVE = 1.0  # loss / chance: what the weights knew was lost for a while


def schedule_jump(run: Run) -> Iterator[Claim]:
    yield from _resumed(run)
    for jump in run.all("rate_jump"):
        if value(jump, "after", 1.0) < value(jump, "before", 0.0):
            continue  # a decay in steps is a common schedule
        harm = follows(run, jump, HARM)
        decades = value(jump, "decades", 1.0)
        yield Claim(
            cause="schedule_jump",
            failure_type="optimizer_instability",
            layer_name=None,
            step=jump.step,
            predicts=PREDICTS,
            evidence_for=(jump, *harm),
            remedy="bound the schedule and step it in the right unit; restore it with the optimizer when resuming",
            summary=f"the rate rises {10**decades:.3g}-fold within one step",
            refuted_by="the same run with the rate held constant that ends the same way",
            exact=True,
            outcome=bool(harm),
        )
        return


def _resumed(run: Run) -> Iterator[Claim]:
    """Weights of a checkpoint whose optimizer, schedule or scaler was not restored with them."""
    lost = run.first("lost_state")
    if lost is None:
        return
    harm = tuple(e for e in run.all("violent_update", "loss_spike", "exploding_gradient") if e.step <= lost.step + SOON)
    yield Claim(
        cause="schedule_jump",
        failure_type="optimizer_instability",
        layer_name=None,
        step=lost.step,
        predicts={**BLOW_UP, **STARVED},
        evidence_for=(lost, *harm),
        remedy="save and load the states of the optimizer, the schedule and the scaler with the weights; else warm up",
        summary=_what_was_lost(lost),
        refuted_by="the same start with all these states loaded that goes on as this one did",
        exact=True,
        outcome=value(lost, "peak", 0.0) > ABOVE,
    )


def _what_was_lost(lost: SemanticEvent) -> str:
    kind, missing = lost.metadata.get("optimizer") or "optimizer", lost.metadata.get("lost")
    if missing == "scaler":
        return "a resumed run whose GradScaler looks for its scale anew and skips steps"
    what = "at the first rate of its schedule" if missing == "schedule" else "without its state"
    before, peak = value(lost, "before", 0.0), value(lost, "peak", 0.0)
    return f"a resumed run whose {kind} starts {what}: the loss goes from {before:.2g} to {peak:.2g} of chance"
