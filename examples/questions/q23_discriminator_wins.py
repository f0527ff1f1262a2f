"""The discriminator's loss is 0 and the generator's climbs.

Asked in: soumith/ganhacks#36, soumith/ganhacks#40, junyanz/pytorch-CycleGAN-and-pix2pix#806
What is wrong: the generator minimises log(1 - D(G(z))). As soon as the discriminator is sure, that function is flat,
and the generator gets no gradient.
"""

from __future__ import annotations

import torch
from torch import nn

from neuraldbg import NeuralDbg


def main(steps: int = 250) -> NeuralDbg:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    slow = torch.optim.Adam(generator.parameters(), lr=2e-4)
    fast = torch.optim.Adam(discriminator.parameters(), lr=5e-3)
    probability = nn.Sigmoid()
    with NeuralDbg({"generator": generator, "discriminator": discriminator}) as dbg:
        for _ in range(steps):
            real, noise = 4.0 + 0.3 * torch.randn(64, 2), torch.randn(64, 8)
            fast.zero_grad()
            said_real, said_fake = discriminator(real), discriminator(generator(noise).detach())
            loss = nn.functional.softplus(-said_real).mean() + nn.functional.softplus(said_fake).mean()
            loss.backward()
            fast.step()
            slow.zero_grad()
            fooled = torch.log(1 - probability(discriminator(generator(noise))) + 1e-8).mean()
            fooled.backward()
            slow.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
