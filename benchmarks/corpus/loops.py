"""The training loop that most programs share, and how runs are scored."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.corpus.plan import Plan, Record


def rows(plan: Plan) -> Iterator[Tensor]:
    """Row numbers of batch after batch: shuffled epochs, a fixed order, or everything."""
    order = torch.Generator().manual_seed(plan.seed + 17)
    count = len(plan.y)
    while True:
        if plan.full:
            yield torch.arange(count)
            continue
        epoch = torch.arange(count) if plan.fixed_order else torch.randperm(count, generator=order)
        for part in epoch.split(plan.size):
            if len(part) == plan.size:
                yield part


def supervised(plan: Plan, record: Record) -> None:
    """Batches in, loss out, one optimizer; every switch of the plan is looked at in each step."""
    optimizer = plan.optimize(plan.owned() if plan.owned else plan.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=25) if plan.scaler else None
    stream = rows(plan)
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * plan.factor(step)
        for act in plan.before:
            act(step, optimizer)
        if plan.clears(step):
            optimizer.zero_grad()
        total = 0.0
        for _ in range(plan.micro):
            picked = next(stream)
            x, y = plan.corrupted(step, (tuple(t if plan.full else t[picked] for t in plan.x), plan.y[picked]))
            with torch.autocast("cpu", torch.float16, enabled=plan.scaler):
                out = plan.run(x)
            loss = plan.loss(out.float() if plan.scaler else out, y) * plan.weight(step) / plan.micro
            (scaler.scale(loss) if scaler else loss).backward()
            total += loss.item()
        if scaler:
            scaler.unscale_(optimizer)
        if plan.clip is not None:
            nn.utils.clip_grad_norm_(plan.clipped() if plan.clipped else plan.parameters(), plan.clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        for late in plan.after:
            late(step)
        record(total / plan.weight(step) if plan.info.get("scaled") else total)
        if plan.evaluate_every and step % plan.evaluate_every == plan.evaluate_every - 1:
            plan.score(plan)


@torch.no_grad()
def outputs(plan: Plan) -> Tensor:
    """What the models give for the held-out rows, in eval mode, which is left again."""
    was = {m: m.training for top in plan.models.values() for m in top.modules()}
    for top in plan.models.values():
        top.eval()
    found = plan.run(plan.held_x)
    for module, training in was.items():
        module.training = training
    first: Tensor = found[0] if isinstance(found, tuple) else found
    return first.float()


def accuracy(plan: Plan) -> float:
    out = outputs(plan)
    if not torch.isfinite(out).all():
        return math.nan
    if out.dim() == plan.held_y.dim():
        return ((out > 0).float() == plan.held_y).float().mean().item()
    classes = out.shape[-1]
    return (out.reshape(-1, classes).argmax(1) == plan.held_y.reshape(-1)).float().mean().item()


def explained(plan: Plan) -> float:
    """R squared."""
    out, y = outputs(plan), plan.held_y
    return 1 - ((out.reshape(y.shape) - y).pow(2).mean() / (y - y.mean(0)).pow(2).mean()).item()
