"""Optimizer misses parameters

What it is
    Parameters that should train get a gradient and are never updated: they were replaced, added or copied after
    the optimizer was built, or the optimizer writes its update somewhere else.

How it looks
    A gradient that is not zero, and values that stay equal to the bit over many optimizer steps, from the start
    or from one step on.

What speaks against it
    A frozen part has no gradient. A scaler's skipped steps and accumulation pause the updates for a few steps.
    Only the last layers of a pretrained model trained on purpose, without freezing the rest, waste a backward pass
    and learn; a part whose weights still have exactly the size that initialisation gives has nothing to keep.

What to do
    Build the optimizer last, from all that trains: torch.optim.Adam(model.parameters(), lr=1e-3)

Reference
    Jiang et al., "Training with Confidence: Catching Silent Errors in Deep Learning Training", OSDI 2025.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import SemanticEvent
from neuraldbg.reasoning.outcome import after, lasting, not_learning, value
from neuraldbg.record import ParameterFacts
from neuraldbg.rules._nonfinite import rounded_away
from neuraldbg.run import Run

MINORITY = 0.5  # of the layers: whoever fine-tunes a head gives the optimizer few of them
SPREAD = 1.8  # four standard errors of the rms of uniform values, times the root of their number

PREDICTS = {"loss_plateau": 1000, "slow_progress": 1000, "loss_oscillating": 1000}


def optimizer_misses_parameters(run: Run) -> Iterator[Claim]:
    stopped = next(lasting(run, "updates_stop"), None)
    if stopped is not None:
        yield _claim(stopped, (stopped,), "no parameter moves any more although gradients go on", outcome=True)
        return
    stuck = tuple(lasting(run, "stuck_parameter"))
    if not stuck or run.has("nothing_trains") or rounded_away(stuck[0]):
        return
    share = value(stuck[0], "share", 0.0)
    yield _claim(
        stuck[0],
        stuck,
        f"{share:.0%} of the trainable parameters get a gradient and never move" if share else "it never moves",
        outcome=not_learning(run) or not _feature_extractor(run, stuck),
    )


def _feature_extractor(run: Run, stuck: tuple[SemanticEvent, ...]) -> bool:
    """Whether only the last layers were given to the optimizer: a common, wasteful and harmless way to fine-tune."""
    owners = {p.module: p.owner for p in run.facts.parameters if p.trainable}
    still = {e.layer_name for e in stuck} | {module for module, owner in owners.items() if owner is None}
    owned = [module for module, owner in owners.items() if owner is not None]
    if not owned or any(owners.get(e.layer_name or "") is not None for e in stuck):
        return False
    if len(owned) > MINORITY * len(owners) or _untrained(run, still):
        return False  # most layers train: the one in front was forgotten
    return all(after(run, module, name) for module in owned for name in still if name in owners)


def _untrained(run: Run, names: set[str | None]) -> bool:
    """Whether all weight matrices of these modules have, to sampling error, the size of a linear layer's default start.

    That is uniform within 1 / sqrt(fan-in), of rms 1 / sqrt(3 fan-in); training or loading weights leaves it.
    """
    known = run.facts.parameters
    biases = {p.module: p.numel for p in known if p.dims == 1 and p.name.endswith("bias")}
    pairs = [(p, biases.get(p.module, 0)) for p in known if p.module in names and p.dims > 1]
    return bool(pairs) and all(_default(p, units) for p, units in pairs)


def _default(p: ParameterFacts, units: int) -> bool:
    if p.rms is None or units < 1:
        return False
    usual = math.sqrt(units / (3 * p.numel))
    return abs(p.rms / usual - 1) < SPREAD / math.sqrt(p.numel)


def _claim(root: SemanticEvent, found: tuple[SemanticEvent, ...], summary: str, outcome: bool) -> Claim:
    return Claim(
        cause="optimizer_misses_parameters",
        failure_type="optimizer_instability",
        layer_name=root.layer_name,
        step=root.step,
        predicts=PREDICTS,
        evidence_for=found,
        remedy="build the optimizer last, from model.parameters(), and update parameters in place",
        summary=summary,
        refuted_by="a value of such a parameter that changed between two steps",
        exact=True,
        outcome=outcome,
    )
