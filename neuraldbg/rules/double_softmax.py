"""Double softmax

What it is
    The model ends in a softmax and the loss applies it again. The second one sees numbers between 0 and 1, so its
    output is nearly uniform, the loss has a high floor and the gradient is small.

How it looks
    Rows that already sum to one go into a loss that expects raw scores.

What speaks against it
    A loss on probabilities (NLLLoss after log_softmax is right).

What to do
    Give the raw scores to the loss: loss = torch.nn.functional.cross_entropy(logits, target)

Reference
    PyTorch documentation, CrossEntropyLoss: "the input is expected to contain the unnormalized logits".
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning
from neuraldbg.run import Run

FLOOR = 0.5  # loss / chance; with ten classes a perfect answer still costs 0.64 of chance, with two 0.45


def double_softmax(run: Run) -> Iterator[Claim]:
    twice = run.first("double_softmax")
    if twice is None:
        return
    skill = run.skill
    yield Claim(
        cause="double_softmax",
        failure_type="saturated_activations",
        layer_name=twice.layer_name or _softmax(run),
        step=twice.step,
        predicts=STARVED,
        evidence_for=(twice, *lasting(run, "loss_plateau", "slow_progress")),
        remedy="remove the softmax from the model: cross_entropy expects the raw scores",
        summary="the loss applies a softmax to probabilities",
        refuted_by="rows of the model's output that do not sum to one",
        exact=True,
        outcome=not_learning(run) or (skill is not None and skill > FLOOR),
    )


def _softmax(run: Run) -> str | None:
    """The module whose probabilities the loss gets: the softmax at the output, else the only last layer."""
    ends = [m for m in run.facts.modules if m.position == "output" and not m.has_children and m.order is not None]
    last = [m for m in ends if m.activation == "softmax"] or (ends if len(ends) == 1 else [])
    return max(last, key=lambda m: m.order or 0).name if last else None
