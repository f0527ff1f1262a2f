"""Unnormalised inputs

What it is
    The inputs (or the targets) have a scale or an offset that the model cannot take: raw columns in the thousands,
    a large common mean, targets of 1e8.

How it looks
    From step 0 on the first bounded layer or the gates of a recurrent layer sit at their limits, a share of the
    rectified units never fires because it points away from the mean, or the loss does not move. Or the untrained
    outputs are as large as the inputs: the loss starts at many times chance, and on its way down most units of a
    layer die, or it stops on a plateau, or it has only undone its start by the end. Or a common mean many times the
    deviation keeps the loss at chance, or inputs of that size keep it where it began. Or the targets are a hundred
    times what an untrained model gives, and most of the run is spent on growing the weights to that size.

What speaks against it
    Large inputs that nothing follows. Saturation that grows only in training, or behind a rectified layer. A loss
    that starts near chance, or ends below half of it.

What to do
    Standardise every column: x = (x - x_train.mean(0)) / x_train.std(0)

Reference
    LeCun, Bottou, Orr, Mueller, "Efficient BackProp", 1998, section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import (
    BLOW_UP,
    CHANCE,
    LONG_ENOUGH,
    NONFINITE,
    STARVED,
    behind_rectifier,
    lasting,
    not_learning,
    value,
)
from neuraldbg.run import Run

PINNED = 0.7  # of the first bounded layer at its limits before any update; healthy hidden layers have 0.09
OFFSET = 7.5  # mean / deviation; a healthy run with dead units has 5.3, failing ones 10 to 14
DEAD = 0.3  # of a layer's units before any update; healthy layers have 0.42, but not at such an offset
GATES_LG = 2.0  # decades: gates of a recurrent layer saturate at inputs of about ten
HUGE_LG = 4.0  # of the targets; the loss of such a regression cannot move in any usual number of steps
OVERSHOT = 5.0  # times chance before any update; weights of the usual size on scaled inputs start near 1
FAR = 10.0  # times chance: from there a loss that has not come to half of chance has only undone its start
UNLEARNT = 0.5  # of chance at the end
HALF = 0.5  # of a layer's units; healthy layers have 0.42 at most
SOON = 20  # steps to the first large update of a runaway that the inputs make
FIRST = 10  # steps in which gradients of that size throw the weights
FLOOD = 0.5  # strength: the targets are seen exactly, their doing is inferred
RAW_LG = 1.5  # of the inputs, for a runaway to be theirs
GROWN_LG = 1.9  # of the targets; usual outputs are of the size of one, and Adam moves a weight by the rate a step
NEAR_CHANCE = 2.0  # times chance: small outputs for large targets start at the loss of a constant

PREDICTS = {
    **STARVED,
    **BLOW_UP,
    "saturation": 100,
    "dead_units": 100,
    "attention_onehot": 100,
    "recurrent_growth": 100,
    "large_weights": 100,
    "loss_spike": 50,
}


def unnormalised_inputs(run: Run) -> Iterator[Claim]:
    raw, target = run.first("unscaled_input"), run.first("unscaled_target")
    root = raw or target
    if root is None:
        return
    found = (
        _saturated(run, raw)
        or _dead(run, raw)
        or _gates(run, raw)
        or _stuck(run, target)
        or _runaway(run, raw)
        or _overshot(run, raw)
        or _flooded(run, target)
        or _hidden(run, raw)
        or _still(run, raw)
        or _growing(run, target)
    )
    if found is None:
        return
    failure, layer, strength, harm = found
    if target is not None and value(target, "rms_lg", 0.0) > HUGE_LG:
        failure, layer = "data_anomaly", None  # both ends of the model are out of range; no layer is to blame
    also = (target,) if target is not None and target is not root else ()
    yield Claim(
        cause="unnormalised_inputs",
        failure_type=failure,
        layer_name=layer,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=(root, *also, *harm),
        remedy="standardise every input column, and a regression's targets, by their mean and deviation",
        summary=_summary(root),
        refuted_by="the same run on standardised columns that ends the same way",
        strength=strength,
    )


Found = tuple[str, str | None, float, tuple[SemanticEvent, ...]]


def _saturated(run: Run, raw: SemanticEvent | None) -> Found | None:
    for pinned in lasting(run, "saturation", within=5):
        share = value(pinned, "share", 0.0)
        if (
            raw is None
            or share < PINNED
            or pinned.metadata.get("at_start") is not True
            or behind_rectifier(run, pinned.layer_name)
        ):
            continue
        if pinned.metadata.get("position") != "output":
            return (
                "saturated_activations",
                pinned.layer_name,
                0.3 + share - PINNED,
                (pinned, *lasting(run, "loss_plateau")),
            )
    return None


def _dead(run: Run, raw: SemanticEvent | None) -> Found | None:
    if raw is None or value(raw, "offset", 0.0) < OFFSET:
        return None
    for dead in lasting(run, "dead_units", within=10):
        if value(dead, "at_start", 0.0) >= DEAD:
            return "dead_neurons", dead.layer_name, value(raw, "offset", 0.0) / OFFSET - 1, (dead,)
    return None


def _gates(run: Run, raw: SemanticEvent | None) -> Found | None:
    """Gates inside a fused recurrent layer are out of sight: the size of what enters them tells."""
    recurrent = next((m for m in run.facts.modules if m.recurrent), None)
    if raw is None or recurrent is None:
        return None
    rms = value(raw, "rms_lg", 0.0)
    skill = run.skill
    if rms > GATES_LG and (not_learning(run) or (skill is not None and skill > UNLEARNT)):
        return "saturated_activations", recurrent.name, (rms - GATES_LG) / 2, tuple(lasting(run, "loss_plateau"))
    return None


def _stuck(run: Run, target: SemanticEvent | None) -> Found | None:
    """A loss that does not move at targets of huge size."""
    if target is None or value(target, "rms_lg", 0.0) < HUGE_LG:
        return None
    still = tuple(lasting(run, "loss_plateau", "slow_progress"))
    return ("data_anomaly", None, 0.5, still) if still else None


def _runaway(run: Run, raw: SemanticEvent | None) -> Found | None:
    if raw is None or value(raw, "rms_lg", 0.0) < RAW_LG:
        return None
    update = run.first("violent_update", "exploding_gradient")
    ruined = tuple(lasting(run, *NONFINITE, "loss_diverging"))
    if update is None or update.step > SOON or not ruined or run.has("rate_jump", "carried_gradient"):
        return None
    return "exploding_gradients", None, (value(raw, "rms_lg", RAW_LG) - RAW_LG) / 2, (update, *ruined)


def _overshot(run: Run, raw: SemanticEvent | None) -> Found | None:
    """Untrained outputs as large as the inputs: the loss starts far above chance, and units die on its way down."""
    skill = run.get("skill")
    head, tail = skill.head(3), skill.tail()
    if raw is None or value(raw, "rms_lg", 0.0) < RAW_LG or head is None or tail is None:
        return None
    if head < OVERSHOT or tail < UNLEARNT or run.has("rate_jump", "carried_gradient"):
        return None
    dead = tuple(e for e in lasting(run, "dead_units") if value(e, "share", 0.0) > HALF)
    plateau = tuple(lasting(run, "loss_plateau"))
    alone = len(run.facts.optimizers) < 2 and not run.has("saturation")  # of several losses chance is no one level
    if not dead and not plateau and (head < FAR or not alone):
        return None
    failure = "dead_neurons" if dead else "data_anomaly"
    return failure, dead[0].layer_name if dead else None, (value(raw, "rms_lg", RAW_LG) - RAW_LG) / 2, (*dead, *plateau)


def _hidden(run: Run, raw: SemanticEvent | None) -> Found | None:
    """A common mean many times the deviation: samples look alike to the first layer, and the loss stays at chance."""
    flat = tuple(e for e in lasting(run, "loss_plateau") if value(e, "skill", 0.0) > CHANCE)
    if raw is None or value(raw, "offset", 0.0) < OFFSET or not flat:
        return None
    return "data_anomaly", None, FLOOD, flat


def _still(run: Run, raw: SemanticEvent | None) -> Found | None:
    """A loss that never left where it began, on inputs of that size."""
    flat = tuple(e for e in lasting(run, "loss_plateau") if value(e, "since", 1.0) == 0)
    size = value(raw, "rms_lg", 0.0) if raw is not None else 0.0
    if size < RAW_LG or not flat or any(0 <= value(e, "skill", CHANCE) < CHANCE for e in flat):
        return None
    return "data_anomaly", None, (size - RAW_LG) / 2, flat


def _growing(run: Run, target: SemanticEvent | None) -> Found | None:
    """The whole run went into growing outputs to the size of the targets: a fall from chance, not half done."""
    skill = run.get("skill")
    head, tail = skill.head(3), skill.tail()
    if target is None or head is None or tail is None or len(skill) < LONG_ENOUGH:
        return None
    size = value(target, "rms_lg", 0.0)
    if size < GROWN_LG or head > NEAR_CHANCE or not UNLEARNT < tail < CHANCE:
        return None
    return "data_anomaly", None, (size - GROWN_LG) / 2, ()


def _flooded(run: Run, target: SemanticEvent | None) -> Found | None:
    """Targets far from any untrained output: the first gradients are as large as they are, and throw the weights."""
    thrown = run.first("violent_update")
    if target is None or thrown is None or thrown.step > FIRST or run.has("rate_jump", "carried_gradient"):
        return None
    ruined = tuple(lasting(run, *NONFINITE, "loss_diverging", "loss_plateau"))
    lost = tuple(
        e for e in lasting(run, "saturation", "dead_units", since=thrown.step) if value(e, "share", 0.0) > HALF
    )
    at_chance = run.skill is not None and run.skill > CHANCE  # a fall to chance from far above is no learning
    if not ruined and not (lost and at_chance):
        return None
    return "data_anomaly", None, FLOOD, (thrown, *ruined, *lost[:3])


def _summary(root: SemanticEvent) -> str:
    if root.symptom == "unscaled_target":
        return f"targets of size 10^{value(root, 'rms_lg', 3.0):.1f}"
    size, offset = value(root, "rms_lg", 0.0), value(root, "offset", 0.0)
    return f"inputs of size 10^{size:.1f}, mean over deviation {offset:.1f}"
