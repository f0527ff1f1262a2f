"""Residual growth without a norm

What it is
    Each residual block adds a branch as large as its input and nothing normalises the sum, so the stream grows
    with depth and amplifies the gradients of the lower blocks on the way back.

How it looks
    At step 0 the signal grows by decades from the first block to the last, though each block alone grows it
    little; a few steps later the loss explodes, or it starts far above chance and needs a third of the run to come
    back there.

What speaks against it
    A norm in the blocks; branches whose last layer starts at zero; a loss that falls.

What to do
    Start each branch at zero: torch.nn.init.zeros_(block.conv2.weight), or normalise inside the block.

Reference
    Zhang, Dauphin, Ma, "Fixup Initialization", 2019; De, Smith, 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import BLOW_UP, NONFINITE, lasting, late_start, value
from neuraldbg.run import Run

USUAL_LG = 0.2  # decades of growth with depth in healthy runs, at most

PREDICTS = {**BLOW_UP, "loss_spike": 50, "loss_plateau": 1000, "dead_units": 1000, "saturation": 1000}


def residual_growth_without_norm(run: Run) -> Iterator[Claim]:
    growth = run.first("signal_growth")
    if growth is None or growth.step > 0:
        return
    if any(e.step == 0 and e.metadata.get("kind") != "function" for e in run.all("function_growth")):
        return  # a power or an exponential between the layers makes the growth, no sum of branches
    residual = growth.metadata.get("residual") is True or "residual" in run.facts.structure
    normed = growth.metadata.get("has_norm") is True
    harm = tuple(lasting(run, *NONFINITE, "loss_diverging", "exploding_gradient", "loss_plateau"))
    if not residual or normed or not (harm or late_start(run)):
        return
    depth = value(growth, "depth_lg", 1.5)
    yield Claim(
        cause="residual_growth_without_norm",
        failure_type="exploding_gradients",
        layer_name=block(run, growth.layer_name),
        step=growth.step,
        predicts=PREDICTS,
        evidence_for=(growth, *harm),
        remedy="normalise inside the blocks, or start the last layer of each branch at zero",
        summary=f"the signal grows {10**depth:.3g}-fold from the first block to the last",
        refuted_by="the same tower with zero-initialised branches that explodes as well",
        strength=max(0.0, min(1.0, (depth - USUAL_LG) / 2)),
    )


def block(run: Run, name: str | None) -> str | None:
    """The numbered block that a layer lies in ("blocks.3" of "blocks.3.conv1"), else the layer itself."""
    parts = (name or "").split(".")
    known = {m.name for m in run.facts.modules}
    for i, part in enumerate(parts[:-1]):
        outer = ".".join(parts[: i + 1])
        if part.isdigit() and outer in known:
            return outer
    return name
