"""Learning rate too high

What it is
    The updates are as large as the weights. The optimizer steps over the minimum: the loss oscillates or
    diverges, or rectified units are thrown below zero for every sample and never come back.

How it looks
    In the first steps the update of the weight matrices exceeds a fifth of the weights. Then, within a few steps,
    the loss jumps, units die, the output is the same for every sample, or values overflow. In a runaway the
    gradient changes its sign from step to step (its cosine with the last one is negative).

What speaks against it
    An input, an architecture or a rate jump that comes first and explains the update; a change of the weights that is
    larger than any step of the optimizer at this rate (something else wrote to them); units dead before the first
    update; a gradient that grows before the updates do (a loss or target that runs away). Adagrad's first steps
    are large and harmless, so a large update without a consequence is nothing; nor is one layer of dead units in a net
    that learns all the same.

What to do
    Divide the rate by ten, or search for it: optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

Reference
    LeCun, Bottou, Orr, Mueller, "Efficient BackProp", 1998, section 4.6 on the largest stable rate.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, PEAK, STARVED, lasting, not_learning, value
from neuraldbg.run import Run, median

USUAL_LG = -1.0  # healthy runs update by at most a tenth of the weights in their first steps
HEAD = 10  # steps: a constant rate that is too high shows at once
DATED = 3  # steps: a loss that never falls is dated from the start of the run, before the first large update
RISE = 0.2  # of a layer's units that die after the start; with a violent update no healthy run comes near
MOST = 0.5  # of a layer's units dead: a net that learns all the same loses fewer (healthy layers have 0.42 at most)
NEARLY_ALL = 0.7  # of a layer's units
LEARNT = 0.3  # of chance at the end
REPLACED_LG = -0.15  # seven tenths of the weights are new after one step
RISEN = 2.0  # times the first loss: of one that is thrown to three times chance, with what else is added to it
THROWN = 3.0  # times the loss of the untrained model, or of a guess
AGAIN = 2  # jumps; one may be a single batch
HALF = 0.5  # of chance: less than half of it has been learned at the end
TURNS = -0.3  # cosine of successive gradients of an overshoot; runaways of other causes have +0.9

SOON = 60  # steps from the first update to a gradient of zero
FELL = 0.5  # of the first loss: a loss that came down may well end in a gradient of zero

WRITTEN = 1  # steps between a write from outside and the change of the weights that it makes

BEFORE = ("negative_bias", "dead_units")
ALL = 0.9  # of a layer dead before the first update: then the loss stands still because of that

PREDICTS = {
    **BLOW_UP,
    **STARVED,
    "dead_units": 60,
    "saturation": 60,
    "attention_onehot": 60,
    "loss_spike": 60,
}
# What must not come before a large update, or else it is a symptom of that.
PRECURSORS = ("rate_jump", "carried_gradient", "exploding_gradient", "loss_diverging", "input_shift", "input_sentinel")


def learning_rate_too_high(run: Run) -> Iterator[Claim]:
    update = run.first("violent_update")
    if update is None:
        yield from _turning(run)
        return
    if update.step > HEAD and any(run.all(*PRECURSORS, "loss_spike", "zero_batch", before=update)):
        return
    if any(e.order <= update.order for e in run.all("rate_jump", "carried_gradient")):
        return
    if any(abs(e.step - update.step) <= WRITTEN for e in run.all("outside_write")):
        return  # larger than any step that the optimizer can make at this rate
    broken = tuple(lasting(run, *NONFINITE, "loss_diverging", since=update.step))
    silent = any(e.symptom == "negative_bias" or value(e, "at_start", 0.0) > ALL for e in run.all(*BEFORE))
    plateau = lasting(run, "loss_plateau", since=update.step - DATED)
    flat = tuple(e for e in plateau if _above_chance(e)) if not_learning(run) and not silent else ()
    dead = tuple(e for e in lasting(run, "dead_units", "constant_output", since=update.step) if _late(e))
    if dead and not (broken or flat) and _learns(run, dead):
        dead = ()
    if not broken and not _signed(run):
        broken = _thrown(run, update) or _tossed(run, update)
    if not (broken or flat or dead):
        yield from _starved(run, update)
        return
    harmed = [e for e in (*broken, *flat, *dead) if e.order >= update.order]
    failure, at = _failure(update, broken, flat, dead)
    yield Claim(
        cause="learning_rate_too_high",
        failure_type=failure,
        layer_name=at.layer_name if failure == "dead_neurons" else None,
        step=_began(run, at),
        predicts=PREDICTS,
        evidence_for=(update, *harmed),
        remedy="lower the learning rate tenfold (for Adam start at 1e-3), and ramp it up over the first steps",
        summary=f"the update is {10 ** value(update, 'update_lg', -0.7):.2g} of the weights, healthy is below 0.1",
        refuted_by="a run with a tenth of the rate that ends the same way",
        strength=max(0.0, value(update, "update_lg", -0.7) - USUAL_LG),
    )


def _above_chance(event: SemanticEvent) -> bool:
    """A flat loss of which chance is known; a policy's or a game's loss is flat while they learn."""
    return "skill" not in event.metadata or event.metadata["skill"] is not None


def _learns(run: Run, dead: tuple[SemanticEvent, ...]) -> bool:
    """A loss far below chance that was never thrown above it, and one layer alone that lost units, not nearly all."""
    if any(value(e, "over_chance", 0.0) > THROWN for e in run.all("loss_spike")):
        return False
    few = len({e.layer_name for e in dead}) == 1 and max(value(e, "share", 1.0) for e in dead) < NEARLY_ALL
    return few and run.skill is not None and run.skill < LEARNT


def _signed(run: Run) -> bool:
    """A loss that takes both signs (a policy's: a cross entropy times advantages) has no scale to measure a jump by."""
    return min(run.get("loss").values, default=0.0) < 0


def _thrown(run: Run, update: SemanticEvent) -> tuple[SemanticEvent, ...]:
    """The first steps replaced the weights, the loss jumped, and it ends above where the untrained model was."""
    losses = run.get("loss")
    if value(update, "update_lg", 0.0) < REPLACED_LG or update.metadata.get("at_start") is not True:
        return ()
    first, tail = median(losses.values[:1]), losses.tail()
    if first is None or tail is None or first <= 0 or tail <= first or len(run.facts.optimizers) > 1:
        return ()
    jumps = run.all("loss_spike")
    return tuple(e for e in jumps if value(e, "height", 0.0) > THROWN * first) if run.skill is None else ()


def _tossed(run: Run, update: SemanticEvent) -> tuple[SemanticEvent, ...]:
    """The first steps replaced the weights and threw the loss far above chance: again and again, or without recovery.

    Adagrad's first steps are as large; no healthy loss goes to three times chance by them and stays near it, or
    comes back to it. The loss itself must rise: what a guess would lose falls where the targets are a policy's own
    actions, and more and more alike.
    """
    if value(update, "update_lg", 0.0) < REPLACED_LG or update.metadata.get("at_start") is not True:
        return ()
    skill, tail = run.get("skill"), run.get("skill").tail()
    jumps = tuple(e for e in run.all("loss_spike") if value(e, "over_chance", 0.0) > PEAK)
    if len(jumps) >= AGAIN:
        return jumps[:3]
    soon = [v for s, v in skill.points if 0 < s <= HEAD]
    losses = [v for s, v in run.get("loss").points if s <= HEAD]
    risen = not losses or max(losses) > RISEN * losses[0]
    unlearnt = tail is not None and tail > HALF
    thrown = max(soon, default=0.0) > THROWN * max(1.0, skill.values[0] if soon else 1.0)
    return (update,) if unlearnt and risen and thrown else ()


def _late(event: SemanticEvent) -> bool:
    """A loss of capacity that the updates made; what was dead at the start was not their doing."""
    if event.symptom == "constant_output":
        return event.metadata.get("at_start") is not True
    rise = value(event, "rise", value(event, "share", 0.0) - value(event, "at_start", 0.0))
    return rise > RISE and value(event, "share", 1.0) > MOST


def _failure(
    update: SemanticEvent,
    broken: tuple[SemanticEvent, ...],
    flat: tuple[SemanticEvent, ...],
    dead: tuple[SemanticEvent, ...],
) -> tuple[str, SemanticEvent]:
    """The first event that harms: the update where it ruins the loss, else the units that it kills."""
    if any(e.symptom in NONFINITE for e in broken):
        return "exploding_gradients", update
    if broken or flat:
        return "optimizer_instability", update
    units = [e for e in dead if e.symptom == "dead_units"]
    return ("dead_neurons", units[0]) if units else ("optimizer_instability", update)


def _began(run: Run, at: SemanticEvent) -> int:
    """Where units die in several bouts: the first of that layer that was more than the start had."""
    if at.symptom != "dead_units":
        return at.step
    bouts = run.all("dead_units", layer=at.layer_name)
    return next((e.step for e in bouts if value(e, "rise", value(e, "share", 0.0)) > RISE), at.step)


def _starved(run: Run, update: SemanticEvent) -> Iterator[Claim]:
    """A note: after a first update of the size of the weights no gradient comes any more, and the loss stays.

    A policy that is certain of one action looks so, and its loss says nothing of how good that action is.
    """
    gone = next(lasting(run, "zero_gradient", since=update.step, within=SOON), None)
    head, tail = run.get("loss").head(), run.get("loss").tail()
    if gone is None or update.metadata.get("at_start") is not True or head is None or tail is None:
        return
    if run.skill is not None or (head > 0 and tail < FELL * head):
        return
    yield Claim(
        cause="learning_rate_too_high",
        failure_type="optimizer_instability",
        layer_name=None,
        step=update.step,
        predicts={"zero_gradient": SOON, "dead_units": 60},
        evidence_for=(update, gone),
        remedy="lower the learning rate tenfold; of a policy, record the reward and its entropy too",
        summary=f"the update is {10 ** value(update, 'update_lg', -0.7):.2g} of the weights,"
        f" and from step {gone.step} on the gradient is exactly zero",
        refuted_by="a run with a tenth of the rate whose gradient vanishes as well",
        strength=0.0,
        outcome=False,
    )


def _turning(run: Run) -> Iterator[Claim]:
    """A runaway with updates below the mark: the gradient turns round at each step."""
    for event in lasting(run, "exploding_gradient", "loss_diverging"):
        cosine = value(event, "cosine", run.get("cosine").tail() or 0.0)
        if cosine > TURNS or run.first("carried_gradient", "rate_jump", before=event):
            continue
        ruined = tuple(lasting(run, *NONFINITE, "loss_diverging", since=event.step))
        if ruined:
            yield Claim(
                cause="learning_rate_too_high",
                failure_type="exploding_gradients",
                layer_name=None,
                step=event.step,
                predicts=PREDICTS,
                evidence_for=(event, *ruined),
                remedy="lower the learning rate tenfold",
                summary=f"successive gradients point against each other (cosine {cosine:.2f})",
                refuted_by="a run with a tenth of the rate that ends the same way",
                strength=abs(cosine - TURNS),
            )
            return
