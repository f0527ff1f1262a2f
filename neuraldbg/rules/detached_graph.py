"""Detached graph

What it is
    A part of the model runs but is cut off from the loss: .detach(), .item(), torch.no_grad() or a conversion to
    numpy lies between it and the loss, so it gets no gradient at all.

How it looks
    Trainable parameters of modules that ran in the forward pass, whose gradient is None in every backward pass
    while later layers have one; or from some step on, though the module runs and its optimizer steps as before.

What speaks against it
    A module that never ran (an unused head), or one that no later layer uses; parameters that do not require
    gradients. While the loss falls: less than a fiftieth of the parameters, which is a bias or a gate that a branch
    leaves out.

What to do
    Keep the tensor in the graph: features = encoder(x) instead of encoder(x).detach()

Reference
    PyTorch documentation, "Autograd mechanics", on detach() and no_grad.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuraldbg.diagnosis import Claim
from neuraldbg.events import LISTED, SemanticEvent
from neuraldbg.reasoning.outcome import after, lasting, not_learning, value
from neuraldbg.run import Run

CHECKPOINT = "checkpoint(..., use_reentrant=False), or model.enable_input_require_grads(); or remove the no_grad()"
LARGE = 0.02  # share of the parameters; a bias or a gate that a branch leaves out is less


def detached_graph(run: Run) -> Iterator[Claim]:
    cut = next(lasting(run, "no_gradient", "lost_gradient"), None)
    if cut is None or run.has("nothing_trains") or not _ran(run, cut):
        return
    share = value(cut, "share", 0.0)
    unwatched = cut.metadata.get("without_grad") is True
    if unwatched and not _owned(run, cut):
        return  # a teacher or a copy that is only asked: no optimizer was given it
    yield Claim(
        cause="detached_graph",
        failure_type="vanishing_gradients",
        layer_name=cut.layer_name,
        step=cut.step,
        predicts={"loss_plateau": 1000, "slow_progress": 1000, "constant_output": 1000},
        evidence_for=(cut, *lasting(run, "loss_plateau")),
        remedy=CHECKPOINT
        if unwatched
        else "remove the .detach(), .item(), no_grad or numpy conversion between this module and the loss",
        summary=_summary(cut, share),
        refuted_by="a gradient that is not None in one of its parameters",
        exact=True,
        outcome=_owned(run, cut) and (not_learning(run) or (not unwatched and share >= LARGE and _upstream(run, cut))),
    )


def _summary(cut: SemanticEvent, share: float) -> str:
    ever = "get no gradient any more" if cut.symptom == "lost_gradient" else "never get a gradient"
    return f"{share:.0%} of the trainable parameters {ever}" if share else f"its parameters {ever}"


def _ran(run: Run, event: SemanticEvent) -> bool:
    """Whether the module ran; without facts the event is believed."""
    module = run.facts.module(event.layer_name)
    return module is None or module.order is not None or module.without_grad


def _owned(run: Run, event: SemanticEvent) -> bool:
    """Whether an optimizer was given it: then it is meant to train."""
    named = event.metadata.get("parameters")
    missing = set(named) if isinstance(named, tuple) else None
    mine = [p for p in run.facts.parameters if p.module == event.layer_name]
    if missing is not None:
        if len(missing) < LISTED and any(p.trainable and p.name not in missing for p in mine):
            return False  # another parameter of this module has its gradient: this one is unused, not cut off
        mine = [p for p in mine if p.name in missing]
    return any(p.owner is not None for p in mine)


def _upstream(run: Run, event: SemanticEvent) -> bool:
    """Whether layers with parameters follow in the forward order."""
    return any(m.trainable > 0 and after(run, m.name, event.layer_name) for m in run.facts.modules)
