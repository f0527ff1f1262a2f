"""The reward collapses and never comes back.

Asked in: XueZeyue/DanceGRPO#55, PeterGriffinJin/Search-R1#88, huggingface/trl#2980
What is wrong: the policy's updates are far too large. One lucky batch makes it certain of one action, after which it
explores nothing and has no gradient that could correct it.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 200, rate: float = 1.0) -> NeuralDbg:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    right = nn.Linear(4, 4)
    with NeuralDbg(policy) as dbg:
        for _ in range(steps):
            states = torch.randn(64, 4)
            actions = torch.distributions.Categorical(logits=policy(states))
            taken = actions.sample()
            reward = (taken == right(states).argmax(1)).float()
            optimizer.zero_grad()
            loss = -(actions.log_prob(taken) * (reward - reward.mean())).mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(-reward.mean().item())  # what is to fall; the surrogate loss above says nothing
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
