"""Label error

What it is
    Labels are shifted, scaled, shuffled or out of range from some step on: a second export that counts its classes
    from one, another unit.

How it looks
    The loss jumps from far below chance to far above it within one step, or to a height above chance that comes back
    in the batches after it. Inputs, rate and hidden layers of that step are as before: the model is confidently
    wrong. Or the targets of a regression themselves become several
    times as large or as small from one batch to the next, and the loss jumps or diverges after that.

What speaks against it
    An input event, a rate jump, a large update or dead units at the same step; a jump that stays below chance, or
    one from a loss that had never come down to half of it. Targets of a new scale that do no harm.

What to do
    Compare the label histograms of the sources: print(torch.bincount(labels))

Reference
    Northcutt, Athalye, Mueller, "Pervasive Label Errors in Test Sets", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import Phase, SemanticEvent
from neuraldbg.reasoning.outcome import PEAK, value
from neuraldbg.run import Run, median

ABOVE = 1.3  # loss / chance of a jump that comes back: no guess loses as much, and no lucky batch
BACK, SPAN, LEVEL = 3, 10, 0.7  # batches of the next ten at this share of the height; a spike of one batch has none
LEARNT = 0.5  # loss / chance before the jump: the model knew the old labels
DECADES = 0.7  # of the jump, over the losses before
SOME_LEARNT, SOME_DECADES = 0.75, 0.5  # where ten batches in a row then lose more than a guess, less must be known
AFTER = (3, 10)  # steps after the jump
STAYS = 0.5  # of chance; a spike of the optimizer's own making is over by then
MOVES = ("rate_jump", "violent_update", "exploding_gradient", "outside_write")
REPLACED = -0.15  # decades, update / weight at the start: weights that each step replaces jump by themselves
NEAR = 3  # steps before the jump in which an input or a rate would explain it


def label_error(run: Run) -> Iterator[Claim]:
    yield from _other_unit(run)
    for jump in run.all("loss_spike"):
        height = value(jump, "over_chance", 0.0)
        if not (height > PEAK or _comes_back(run, jump)):
            continue
        least, most = (SOME_DECADES, SOME_LEARNT) if _goes_on(run, jump) else (DECADES, LEARNT)
        if value(jump, "decades", 0.0) < least or value(jump, "before_over_chance", 0.0) > most:
            continue
        if _explained(run, jump) or not _stays(run, jump):
            continue
        yield Claim(
            cause="label_error",
            failure_type="data_anomaly",
            layer_name=None,
            step=jump.step,
            predicts={"exploding_gradient": 50, "violent_update": 50, "loss_oscillating": 100, "loss_plateau": 1000},
            evidence_for=(jump,),
            remedy="map all sources to the same class indices and units before joining them",
            summary=f"the loss jumps to {height:.1f} x chance while inputs and rate are as before",
            refuted_by="labels of this step that agree with the model's answers on earlier samples",
            strength=max(0.0, math.log10(height / PEAK)) + 0.3,
        )
        return


def _goes_on(run: Run, jump: SemanticEvent) -> bool:
    """Every batch after it loses more than a guess would: the model is wrong of all of them, and sure of it."""
    after = run.get("skill").between(jump.step, jump.step + SPAN)
    return len(after) > SPAN and min(after) > 1.0


def _comes_back(run: Run, jump: SemanticEvent) -> bool:
    """Some batches after it lose as much, and none before did, as tiny ones would now and then: wrong labels too."""
    height = value(jump, "over_chance", 0.0)
    skill = run.get("skill")
    later = skill.between(jump.step + 1, jump.step + SPAN)
    if any(v > LEARNT for v in skill.between(jump.step - SPAN, jump.step - 1)):
        return False
    return height > ABOVE and sum(v > max(1.0, LEVEL * height) for v in later) >= BACK


def _stays(run: Run, jump: SemanticEvent) -> bool:
    """Wrong labels go on being wrong: the loss is still high a few steps later, and a single bad batch is none."""
    after = median(run.get("skill").between(jump.step + AFTER[0], jump.step + AFTER[1]))
    return after is None or after > STAYS


def _explained(run: Run, jump: SemanticEvent) -> bool:
    """An input, a rate, an update or the forward pass accounts for the jump."""
    first = jump.step - NEAR
    data = [e for e in run.in_phase(Phase.INPUT, until=jump.step + 1) if e.step >= first]
    acts = [e for e in run.in_phase(Phase.FORWARD, until=jump.step) if e.step == jump.step]
    moves = [e for e in run.all(*MOVES, before=jump.step) if e.step >= first]
    thrown = run.first("violent_update")
    if thrown is not None and thrown.metadata.get("at_start") is True and value(thrown, "update_lg", -1.0) > REPLACED:
        return True
    late = [e for e in run.all("rate_jump") if first <= e.step <= jump.step]
    return bool(data or acts or moves or late) or run.has("carried_gradient")


def _other_unit(run: Run) -> Iterator[Claim]:
    """The targets themselves changed their scale while the inputs and the rate did not: seen exactly."""
    shift = run.first("target_shift")
    if shift is None or any(
        abs(e.step - shift.step) <= NEAR for e in run.all("input_shift", "input_sentinel", "rate_jump")
    ):
        return
    harm = tuple(e for e in run.all("loss_spike", "violent_update", "loss_diverging") if e.step >= shift.step)
    yield Claim(
        cause="label_error",
        failure_type="data_anomaly",
        layer_name=None,
        step=shift.step,
        predicts={
            "loss_spike": 3,
            "exploding_gradient": 50,
            "violent_update": 50,
            "saturation": 100,
            "loss_plateau": 1000,
        },
        evidence_for=(shift, *harm[:3]),
        remedy="bring all sources to one unit before joining them, and standardise the targets once",
        summary=f"the targets are {value(shift, 'ratio', 1.0):.3g} times as large as in the batches before",
        refuted_by="targets of this step that have the unit of the earlier ones",
        exact=True,
        outcome=bool(harm),
    )
