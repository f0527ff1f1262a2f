#!/usr/bin/env python3
"""A Hydra multirun whose jobs are watched: each leaves its journal in its own folder, and one command compares them.

    python examples/hydra_sweep.py --multirun rate=0.01,0.1,1e6 width=8,32
    neuraldbg compare multirun

The hyper-parameters that `compare` relates to the causes are the overrides of each job, kept beside its journal.
"""

from __future__ import annotations

from pathlib import Path

import hydra
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.runfolder import FolderSink, RunFolder

ConfigStore.instance().store(name="job", node={"rate": 0.05, "width": 16, "steps": 60})


@hydra.main(version_base=None, config_name="job")
def main(job: DictConfig) -> None:
    """One training, watched; its folder is the one that Hydra made for it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(HydraConfig.get().runtime.output_dir)
    here = RunFolder(folder, {"arguments": list(HydraConfig.get().overrides.task)})
    model = nn.Sequential(nn.Linear(4, job.width), nn.ReLU(), nn.Linear(job.width, 1))
    optimizer = torch.optim.SGD(model.parameters(), job.rate)
    with NeuralDbg(model, sinks=[FolderSink(here, 64.0, lambda diagnosis: None)]) as dbg:
        for _ in range(job.steps):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    top = dbg.diagnose().top
    print(f"rate {job.rate} width {job.width}: {dbg.diagnose().verdict}{f', {top.cause}' if top else ''}")


if __name__ == "__main__":
    main()
