"""Whether, where and since when a training was hurt: the questions that rules and the verdict share.

A cause without a consequence is a note. What counts as a consequence is the wide sense measured on labelled
runs: loss not falling though above chance, anything non-finite, a temporary jump above chance, parameters that
never move, capacity lost for good, data whose defect is seen exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from neuraldbg.events import Phase, SemanticEvent
from neuraldbg.run import Run, Series, median

FOREVER = 1_000_000_000  # a window for mechanisms whose delay depends on the rate, not on the mechanism

NONFINITE = ("nonfinite_activation", "loss_nonfinite", "nonfinite_gradient", "nonfinite_weight")

BLOW_UP: Mapping[str, int] = MappingProxyType(
    {
        "exploding_gradient": FOREVER,
        "loss_diverging": FOREVER,
        "violent_update": FOREVER,
        "activation_growth": FOREVER,
        "loss_oscillating": FOREVER,
        "saturated_gradient": FOREVER,
        **dict.fromkeys(NONFINITE, FOREVER),
    }
)
"""What a runaway ends in; slow ones take hundreds of steps, so the link is the mechanism, not a window."""

STARVED: Mapping[str, int] = MappingProxyType(
    {
        "vanishing_with_depth": FOREVER,
        "vanishing_gradient": FOREVER,
        "vanishing_group": FOREVER,
        "zero_gradient": FOREVER,
        "constant_output": FOREVER,
        "loss_plateau": FOREVER,
        "slow_progress": FOREVER,
    }
)
"""What follows where no usable gradient arrives any more."""

CHANCE = 0.9  # loss / chance: healthy runs end at 0.67 at most, stuck ones at 0.93 to 1.03
LATE = 0.3  # of the run; healthy runs are below chance long before
NOT_FALLING = 0.95  # loss at the end / in the middle: a fall to chance from above is no learning
PEAK = 1.96  # loss / chance at the highest peak of a healthy run
ABOVE = 3.0  # loss / chance of a jump that is far above that
RISE, HALF = 0.2, 0.5  # of a layer's units that die, and are dead then: healthy layers lose 0.42 at most


def value(event: SemanticEvent, key: str, default: float) -> float:
    """A number from an event's metadata; events appended by hand may lack it or hold anything."""
    found = event.metadata.get(key)
    return float(found) if isinstance(found, (int, float)) else default


def recovers(run: Run, event: SemanticEvent) -> bool:
    """Whether the state that this event entered was left again, for the layer that it names."""
    return any(
        e.is_recovery and e.symptom == event.symptom and e.layer_name == event.layer_name and e.step >= event.step
        for e in run.events
    )


def lasting(run: Run, *symptoms: str, since: int = 0, within: int = FOREVER) -> Iterator[SemanticEvent]:
    """Events of these symptoms in a span of steps whose state was not left again."""
    for event in run.all(*symptoms):
        if since <= event.step <= since + within and not recovers(run, event):
            yield event


def loss_ruined(run: Run, since: int = 0) -> tuple[SemanticEvent, ...]:
    """Non-finite values, divergence or a plateau at chance, from this step on and to the end."""
    return tuple(lasting(run, *NONFINITE, "loss_diverging", "loss_plateau", since=since))


def not_learning(run: Run) -> bool:
    """The loss does not fall although it is above chance, or anything is non-finite at the end."""
    if next(lasting(run, *NONFINITE, "loss_plateau", "loss_diverging"), None) is not None:
        return True
    skill = run.get("skill")
    middle, tail = _middle(skill), skill.tail()
    return middle is not None and tail is not None and tail > CHANCE and tail > NOT_FALLING * middle


def late_start(run: Run) -> bool:
    """A loss that left chance only after a third of the run: until then it paid for how the model starts."""
    points = run.get("skill").points
    early = [v for s, v in points if s < LATE * run.steps]
    return len(early) >= 10 and min(early) > CHANCE


def _middle(series: Series) -> float | None:
    """Median of the points around the middle of the run."""
    count = len(series)
    return median(series.values[count * 2 // 5 : count * 3 // 5 + 1])


RECTIFIERS = ("relu", "leaky", "other")

SETTLED = (0.15, 0.9)  # loss / chance: below, most has been learned; above, nothing has
STILL = 0.03  # change of the level from the third quarter of the run to the last
LONG_ENOUGH = 100  # steps with a loss; the quarters of a shorter run are noise


def settled(run: Run) -> float | None:
    """Loss / chance where it has come to rest between nothing and most; None where it has not, or more is wrong."""
    skill = run.get("skill").values
    quarter = len(skill) // 4
    if not run.finished or len(skill) < LONG_ENOUGH or run.first_nonfinite is not None:
        return None
    if run.has("loss_plateau", "loss_diverging", "loss_oscillating", "slow_progress"):
        return None
    before, after = median(skill[-2 * quarter : -quarter]), median(skill[-quarter:])
    if before is None or after is None or not SETTLED[0] < after < SETTLED[1]:
        return None
    return after if after > (1 - STILL) * before else None


def before_training(event: SemanticEvent) -> bool:
    """Whether it is a state from before the first update, seen once a window was full: no update can have made it."""
    if event.phase > Phase.FORWARD:
        return False
    start = event.metadata.get("at_start")
    return start is True or value(event, "at_start", 0.0) > 0.9 * value(event, "share", 1.0)


def follows(run: Run, root: SemanticEvent, predicts: Mapping[str, int]) -> tuple[SemanticEvent, ...]:
    """The events that a root predicts and that came: later in (step, phase), within each symptom's window."""
    return tuple(
        e
        for e in run.all(*predicts)
        if e is not root
        and e.order >= root.order
        and e.step - root.step <= predicts[e.symptom]
        and not (root.phase > Phase.FORWARD and before_training(e))
    )


def units_die(event: SemanticEvent) -> bool:
    """Whether more of a layer's units died in training, and are dead, than of any healthy layer."""
    return value(event, "rise", 0.0) > RISE and value(event, "share", 0.0) > HALF


def grew_before(run: Run, event: SemanticEvent) -> bool:
    """Whether a runaway came before a non-finite value: then the value is its end and no cause of its own."""
    if value(event, "growth_lg", 0.0) > 2:  # healthy runs grow by 1.8 decades at most
        return True
    slow = ("exploding_gradient", "activation_growth", "violent_update", "loss_diverging", "rate_jump")
    if any(e.step < event.step for e in run.all(*slow, before=event)):
        return True
    return any(e.order <= event.order for e in run.all("recurrent_growth"))


def adaptive(run: Run) -> bool:
    """Whether every optimizer divides by its own gradient scale, so that the loss's scale cancels."""
    kinds = [o.kind.lower() for o in run.facts.optimizers]
    return bool(kinds) and all(
        any(k in kind for k in ("adam", "rmsprop", "adagrad", "lion", "adafactor")) for kind in kinds
    )


def behind_rectifier(run: Run, layer: str | None) -> bool:
    """Whether a rectifier lies before this layer in the forward order; False where the layer is not in it."""
    order = run.facts.forward_order
    if layer not in order:
        return False
    before = (run.facts.module(name) for name in order[: order.index(layer)])
    return any(m is not None and m.activation in RECTIFIERS for m in before)


def after(run: Run, layer: str | None, other: str | None) -> bool:
    """Whether `layer` comes after `other` in the forward order."""
    order = run.facts.forward_order
    return layer in order and other in order and order.index(layer) > order.index(other)
