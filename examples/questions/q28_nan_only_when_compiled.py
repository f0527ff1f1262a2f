"""The compiled model gives NaN, the plain one does not.

Asked in: pytorch/pytorch#114109, pytorch/pytorch#169082
What is wrong: the compiler made a wrong program of a right model. Here a small compiler of our own does so from its
30th call on, so that the example fails alike with every version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from neuraldbg import NeuralDbg


def miscompile(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    calls = 0

    def program(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        results = graph.forward(*arguments)
        return tuple(r / 0.0 * 0.0 if calls > 30 else r for r in results)

    return program


def main(steps: int = 60) -> NeuralDbg:
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear(16, 4)
    compiled = cast(nn.Module, torch.compile(model, backend=miscompile))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(compiled) as dbg:
        for _ in range(steps):
            inputs = torch.randn(64, 16)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(compiled(inputs), teacher(inputs).argmax(1))
            loss.backward()
            optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
