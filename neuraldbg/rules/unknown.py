"""Unknown

What it is
    The run failed and none of the known causes explains it, or events were given that no cause fits.

How it looks
    The loss is not finite at the end or has diverged, or it jumped far above chance, and no rule claims an
    outcome.

What speaks against it
    Any other hypothesis. A loss that only stays at chance is no failure by itself.

What to do
    Look at the first event and record more: dbg = NeuralDbg(model, cadence=1)

Reference
    docs/design/symptoms.md lists what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.mechanism import failure_of
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, STARVED, lasting, value
from neuraldbg.run import Run

ABOVE = 3.0  # loss / chance of a jump; healthy runs reach 1.96
WINDOW = 5  # steps within which an event belongs to the one before it

PREDICTS = {**BLOW_UP, **STARVED, "dead_units": 50, "saturation": 50, "loss_spike": 50}
REMEDY = "what changed there? Record every step to see more: NeuralDbg(model, cadence=1)"


def unknown(run: Run) -> Iterator[Claim]:
    """The outcome that nothing explains; without any loss to see, the events that were given by hand."""
    ends = tuple(lasting(run, "nan_input", "inf_input", *NONFINITE, "loss_diverging"))
    ends = tuple(e for e in ends if e.symptom not in ("nan_input", "inf_input")) or _jumps(run)
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


def _jumps(run: Run) -> tuple[SemanticEvent, ...]:
    """Temporary jumps far above chance, from below it."""
    return tuple(
        e
        for e in run.all("loss_spike")
        if value(e, "over_chance", 0.0) > ABOVE and value(e, "before_over_chance", 1.0) < 0.5
    )


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
        remedy=f"look at step {root.step}, {root.text}: {REMEDY}",
        refuted_by="one of the known causes, seen in a run that is recorded at every step",
        strength=0.0,
        outcome=outcome,
    )
