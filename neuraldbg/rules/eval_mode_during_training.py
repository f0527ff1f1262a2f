"""Eval mode during training

What it is
    The model trains with dropout off and with the batch norms' running statistics, mostly because a validation
    pass called model.eval() and nothing called model.train() again.

How it looks
    All dropout and batch-norm modules that train report training=False in training steps. A batch norm whose running
    statistics do not fit its input, since no training step ever updates them, lets the signal through unscaled.

What speaks against it
    A frozen backbone in eval mode is intended; so is fine-tuning with frozen statistics.

What to do
    Switch back at the start of each epoch: model.train()

Reference
    PyTorch documentation, torch.nn.Module.eval.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.reasoning.outcome import lasting, loss_ruined, not_learning, value
from neuraldbg.run import Run

OFF_LG = 1.0  # decades of a norm's output above one; with statistics that fit it is about one


def eval_mode_during_training(run: Run) -> Iterator[Claim]:
    mode = next(lasting(run, "eval_mode"), None)
    if mode is None:
        return
    count = value(mode, "modules", 0.0)
    yield Claim(
        cause="eval_mode_during_training",
        failure_type="optimizer_instability",
        layer_name=mode.layer_name,
        step=mode.step,
        predicts={"loss_plateau": 1000, "loss_diverging": 1000},
        evidence_for=(mode, *loss_ruined(run)),
        remedy="call model.train() before the training steps that follow a validation pass",
        summary=f"{count:.0f} modules behave as in evaluation" if count else "",
        refuted_by="training=True in one of these modules",
        exact=True,
        outcome=not_learning(run) or value(mode, "rms_lg", 0.0) > OFF_LG,
    )
