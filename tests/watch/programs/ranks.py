"""One rank of a small training under DDP or FSDP2: trains bare and watched, prints what was seen as one line of JSON.

    ranks.py RANK/WORLD STORE {ddp,before,after} [STEP VALUE]

before, after: whether the session is entered before or after `fully_shard`. VALUE: what stands in the second rank's
batch of that step; "kill" ends that rank there instead, where it is watched.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from neuraldbg import NeuralDbg
from neuraldbg.record import RunFacts, StepRecord

STEPS = 4
ROWS = 6


class Net(nn.Module):
    """Parameters of its own beside those of its children, and a layer too small to be split over two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 1)
        self.scale = nn.Parameter(torch.ones(2, 8))

    def forward(self, x: Tensor) -> Any:
        return self.last(torch.relu(self.first(x)) * self.scale.sum(0))


def part(t: Tensor) -> Tensor:
    return t.to_local().detach() if hasattr(t, "to_local") else t.detach()


def rms(t: Tensor) -> float:
    return float(part(t).square().mean().sqrt())


def train(
    stack: ExitStack, rank: int, world: int, how: str, watched: bool, fault: tuple[int, str] | None
) -> dict[str, Any]:
    torch.manual_seed(0)
    model: nn.Module = Net()
    records: list[StepRecord] = []
    dbg: NeuralDbg | None = None

    def enter(called: nn.Module) -> NeuralDbg | None:
        if not watched:
            return None
        session = stack.enter_context(NeuralDbg(called, cadence=1))
        feed = session._session.feed

        def kept(record: StepRecord, facts: RunFacts) -> None:
            records.append(record)
            feed(record, facts)

        session._session.feed = kept
        return session

    called = model
    if how == "ddp":
        called = nn.parallel.DistributedDataParallel(model)
        dbg = enter(called)
    else:
        dbg = enter(model) if how == "before" else None
        mesh = init_device_mesh("cpu", (world,))
        for child in model.children():
            fully_shard(child, mesh=mesh)
        fully_shard(model, mesh=mesh)
        dbg = dbg or enter(model)
    optimizer = torch.optim.SGD(called.parameters(), 0.05)
    generator = torch.Generator().manual_seed(10 + rank)
    losses, held, local = [], [], []
    for step in range(max(STEPS, fault[0] + 2) if fault else STEPS):
        x = torch.randn(ROWS, 4, generator=generator)
        if fault and step == fault[0] and rank == 1:
            if fault[1] == "kill":
                if watched:
                    os.kill(os.getpid(), signal.SIGKILL)
            else:
                x[2, 1] = float(fault[1])
        if how == "ddp" and not watched:  # what this rank alone would have as gradients
            alone = copy.deepcopy(model)
            alone.zero_grad()
            alone(x).square().mean().backward()
            local.append({n: rms(p.grad) for n, p in alone.named_parameters() if p.grad is not None})
        optimizer.zero_grad()
        loss = called(x).square().mean()
        loss.backward()
        held.append(
            {n: rms(p.grad) for n, p in model.named_parameters() if p.grad is not None and part(p.grad).numel()}
        )
        optimizer.step()
        losses.append(loss.item())
    stack.close()
    out: dict[str, Any] = {
        "losses": losses,
        "weights": [part(p).flatten().tolist() for p in model.parameters()],
        "held": held,
        "local": local,
    }
    if dbg is not None:
        diagnosis = dbg.diagnose()
        top = diagnosis.top
        out |= {
            "steps": diagnosis.steps,
            "notes": list(diagnosis.facts.coverage.notes),
            "seen": [{n: p.gradient for n, p in r.parameters.items() if p.gradient is not None} for r in records],
            "moved": [{n: p.moved for n, p in r.parameters.items()} for r in records],
            "verdict": str(diagnosis.verdict),
            "cause": None if top is None else [top.cause, top.step],
        }
    return out


def main() -> None:
    rank, world = map(int, sys.argv[1].split("/"))
    store, how = sys.argv[2], sys.argv[3]
    fault = (int(sys.argv[4]), sys.argv[5]) if len(sys.argv) > 4 else None
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    done = []
    for watched in (False, True):
        with ExitStack() as stack:
            done.append(train(stack, rank, world, how, watched, fault))
    print(json.dumps(done))
    dist.destroy_process_group()


main()
