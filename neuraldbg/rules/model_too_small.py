"""Model too small

What it is
    The model cannot express what the task asks for: it is linear, or all of it passes through a few units.

How it looks
    The loss has settled between a seventh and nine tenths of chance, and no hidden layer is followed by an
    activation, or the narrowest hidden layer has at most four units and fewer than the output.

What speaks against it
    A loss that still falls. A wider model that ends where this one did: then it is the data.

What to do
    nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, outputs))

Reference
    Goodfellow, Bengio, Courville, "Deep Learning", 2016, section 5.2 on capacity.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import settled
from neuraldbg.record import ModuleFacts
from neuraldbg.run import Run

NARROW = 4  # units
STRENGTH = 0.2  # of any note without a calibration: its confidence stays below one half


def model_too_small(run: Run) -> Iterator[Claim]:
    """Advice: what is known of a loss that has settled above zero."""
    level = settled(run)
    if level is None:
        return
    layers = [m for m in run.facts.modules if m.kind == "Linear" and m.order is not None]
    linear = len(layers) == len([m for m in run.facts.modules if m.parameters and not m.has_children])
    if not layers or not linear or run.facts.structure & {"attention", "recurrent"}:
        return
    narrow = _narrow(layers)
    flat = not any(m.activation for m in run.facts.modules)
    if narrow is None and not flat:
        return
    what = "the model has no activation, so it is linear" if flat else ""
    if narrow is not None and not flat:
        what = f"all of it passes through the {narrow.width} units of this layer"
    yield Claim(
        cause="model_too_small",
        failure_type="optimizer_instability",
        layer_name=narrow.name if narrow is not None and not flat else None,
        step=0,
        remedy="add a hidden layer with an activation, or widen the narrowest one",
        summary=f"{what}; the loss has settled at {level:.0%} of chance",
        refuted_by="a wider model that ends where this one did",
        strength=STRENGTH,
        outcome=False,
        advice=True,
    )


def _narrow(layers: list[ModuleFacts]) -> ModuleFacts | None:
    """The narrowest hidden layer, where it is narrower than what comes out."""
    ordered = sorted(layers, key=lambda m: m.order or 0)
    hidden = [m for m in ordered[:-1] if m.width is not None]
    least = min(hidden, key=lambda m: m.width or 0, default=None)
    out = ordered[-1].width
    return least if least is not None and out is not None and (least.width or 0) <= min(NARROW, out - 1) else None
