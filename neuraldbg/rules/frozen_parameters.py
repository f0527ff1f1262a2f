"""Frozen parameters

What it is
    What should train does not require gradients: a freeze that caught the new head too, or requires_grad_(False)
    after the optimizer was built.

How it looks
    No parameter that the optimizer holds can receive a gradient; nothing it owns ever moves, and the loss only
    jitters.

What speaks against it
    A frozen backbone with a trained head, which is fine-tuning as intended.

What to do
    Leave the head trainable: for p in model.head.parameters(): p.requires_grad_(True)

Reference
    PyTorch documentation, "Autograd mechanics", setting requires_grad.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import CHANCE, lasting, not_learning, value
from neuraldbg.run import Run


def frozen_parameters(run: Run) -> Iterator[Claim]:
    frozen = next(lasting(run, "nothing_trains"), None)
    if frozen is None:
        return
    skill = run.skill
    owned = value(frozen, "owned", 0.0)
    yield Claim(
        cause="frozen_parameters",
        failure_type="vanishing_gradients",
        layer_name=frozen.layer_name,
        step=frozen.step,
        predicts={
            "loss_plateau": 1000,
            "stuck_parameter": 1000,
            "updates_stop": 1000,
            "zero_gradient": 1000,
            "no_gradient": 1000,
            "loss_oscillating": 1000,
        },
        evidence_for=(frozen, *lasting(run, "loss_plateau", "stuck_parameter")),
        remedy="set requires_grad=True on what should train, and build the optimizer from these parameters",
        summary=f"none of the {owned:.0f} tensors that the optimizer holds requires a gradient" if owned else "",
        refuted_by="a parameter of the optimizer that requires a gradient",
        exact=True,
        outcome=skill is None or skill > CHANCE or not_learning(run),
    )
