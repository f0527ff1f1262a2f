"""Attention logits scale

What it is
    The attention scores are not divided by the square root of the head's width, or they grow in training. The
    softmax then puts all its weight on one token and passes hardly any gradient.

How it looks
    The entropy of the attention rows is a small part of what the visible tokens allow, from the first step on or
    after a fall.

What speaks against it
    Attention that becomes sharp late while the loss falls: that is what it learns to do.

What to do
    Scale the scores: scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

Reference
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1; Zhai et al., 2023 (entropy collapse).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import STARVED, lasting, not_learning, value
from neuraldbg.run import Run

SHARP = 0.35  # of the entropy of even attention; healthy runs start at 0.83 or more


def attention_logits_scale(run: Run) -> Iterator[Claim]:
    sharp = next(lasting(run, "attention_onehot"), None)
    if sharp is None:
        return
    at_start, entropy = sharp.metadata.get("at_start") is True, value(sharp, "entropy", SHARP)
    if not at_start and (run.first("violent_update", "rate_jump", before=sharp) or not not_learning(run)):
        return
    yield Claim(
        cause="attention_logits_scale",
        failure_type="saturated_activations",
        layer_name=sharp.layer_name,
        step=sharp.step,
        predicts={**STARVED, "attention_onehot": 50, "saturation": 50},
        evidence_for=tuple(lasting(run, "attention_onehot", "loss_plateau")),
        remedy="scale the scores by 1/sqrt(head_dim), or normalise queries and keys and learn a bounded temperature",
        summary=f"the entropy of attention is {entropy:.2f} of its maximum",
        refuted_by="entropy near its maximum at the first step",
        strength=max(0.0, math.log10(0.8 / max(entropy, 1e-3))),
    )
