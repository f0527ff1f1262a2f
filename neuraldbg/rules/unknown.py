"""Unknown

What it is
    The run failed and none of the known causes explains it, or events were given that no cause fits.

How it looks
    The loss is not finite at the end or has diverged, or it jumped far above chance, and no rule claims an
    outcome. Or the weights changed by more than their optimizer can move them in one step, and the loss jumped with
    them: something outside the training wrote to them.

What speaks against it
    Any other hypothesis. A loss that only stays at chance is no failure by itself, and weights that are written to
    without harm (a moving average, a clip, a checkpoint that is loaded) are the user's own.

What to do
    Look at the first event. Where steps were left out, record all of them: NeuralDbg(model, cadence=1). Where none
    was, tell what could not be seen (dbg.record_loss(loss.item()), dbg.record_validation_loss(value)), let a replay
    name the operator that made the first NaN (replay=True), or find the first step and layer in which a training that
    works differs: neuraldbg diff GOOD BAD

Reference
    docs/design/symptoms.md lists what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.mechanism import failure_of
from neuraldbg.reasoning.outcome import ABOVE, BLOW_UP, NONFINITE, STARVED, lasting, value
from neuraldbg.record import REPLAY_OFF
from neuraldbg.run import Run

SOON = 3  # steps from a write to the weights to the loss that it ruins
WINDOW = 5  # steps within which an event belongs to the one before it

PREDICTS = {**BLOW_UP, **STARVED, "dead_units": 50, "saturation": 50, "loss_spike": 50}
RECORD = "NeuralDbg(model, cadence=1)"
COMPARE = "find the first step and layer in which a training that works differs: neuraldbg diff GOOD BAD"


def unknown(run: Run) -> Iterator[Claim]:
    """The outcome that nothing explains; without any loss to see, the events that were given by hand."""
    written = run.first("outside_write")
    if written is not None and (harm := _harm(run, written)):
        yield _written(run, written, harm)
        return
    ends = tuple(lasting(run, *NONFINITE, "loss_diverging")) or _jumps(run)
    if ends:
        yield _claim(run, ends[0], ends, outcome=True)
        return
    last = -WINDOW - 1
    seen: set[str] = set()
    for event in _given(run):
        kind = failure_of(event)
        if event.step - last > WINDOW and kind not in seen:
            seen.add(kind)
            last = event.step
            group = tuple(e for e in _given(run) if event.step <= e.step <= event.step + WINDOW)
            yield _claim(run, event, group, outcome=not len(run.get("loss")))


def _harm(run: Run, written: SemanticEvent) -> tuple[SemanticEvent, ...]:
    """What ruined the loss right after the write."""
    jumps = [e for e in run.all("loss_spike") if 0 <= e.step - written.step <= SOON]
    return (*jumps, *lasting(run, *NONFINITE, "loss_diverging", since=written.step, within=SOON))


def _written(run: Run, root: SemanticEvent, harm: tuple[SemanticEvent, ...]) -> Claim:
    return Claim(
        cause="unknown",
        failure_type=failure_of(root),
        layer_name=None,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=(root, *harm),
        remedy=f"find what writes to the parameters at step {root.step} (load_state_dict, .data, copy_)"
        + (f"; {RECORD} records every step, and so the very one" if _left_out(run) else ""),
        summary=f"the weights moved {10 ** value(root, 'times_lg', 0.5):.1f} times further than an optimizer step can",
        refuted_by="parameters that are equal right before each optimizer step and right after the last one",
        exact=True,
    )


def _jumps(run: Run) -> tuple[SemanticEvent, ...]:
    """Temporary jumps far above chance, from below it."""
    return tuple(
        e
        for e in run.all("loss_spike")
        if value(e, "over_chance", 0.0) > ABOVE and value(e, "before_over_chance", 1.0) < 0.5
    )


def _left_out(run: Run) -> bool:
    """Whether there are steps of which not everything was recorded."""
    return run.facts.coverage.steps_sampled < run.facts.coverage.steps


def _more(run: Run, root: SemanticEvent) -> str:
    """What would show more than was seen this time: the first of these that was not on."""
    coverage = run.facts.coverage
    if not coverage.steps:
        return "watch the training itself: with NeuralDbg(model):"
    if _left_out(run):
        return f"record every step: {RECORD}"
    if not run.get("loss"):
        return "tell the loss of each step: dbg.record_loss(loss.item())"
    if any(REPLAY_OFF in note for note in coverage.notes):
        return "let a replay of the step name the operator: NeuralDbg(model, replay=True)"
    if root.symptom not in NONFINITE and not run.get("validation"):
        return (
            "tell the loss on other data, which shows whether the training data is at fault:"
            " dbg.record_validation_loss(value)"
        )
    return COMPARE


def _given(run: Run) -> list[SemanticEvent]:
    """Events without the measurements that detectors add: appended by hand, and all that is known."""
    return [e for e in run.events if not e.metadata and not e.is_recovery]


def _claim(run: Run, root: SemanticEvent, found: tuple[SemanticEvent, ...], outcome: bool) -> Claim:
    return Claim(
        cause="unknown",
        failure_type=failure_of(root),
        layer_name=root.layer_name,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=found,
        remedy=f"look at step {root.step}, {root.text}: what changed there? To see more, {_more(run, root)}",
        refuted_by="one of the known causes, seen in a run of which more is recorded",
        strength=0.0,
        outcome=outcome,
    )
