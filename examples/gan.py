"""Two models in one session: a discriminator that wins at once, and the generator that gets no gradient from it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from neuraldbg import NeuralDbg


def main(steps: int = 300) -> NeuralDbg:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    discriminator = nn.Sequential(
        nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
    )
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4)
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-2)
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)

    with NeuralDbg({"generator": generator, "discriminator": discriminator}) as dbg:
        for _ in range(steps):
            real = torch.randn(64, 8) * 0.5 + 3
            fake = generator(torch.randn(64, 8))

            discriminator_optimizer.zero_grad()
            right = binary_cross_entropy_with_logits(discriminator(real), yes)
            right = right + binary_cross_entropy_with_logits(discriminator(fake.detach()), no)
            right.backward()
            discriminator_optimizer.step()

            generator_optimizer.zero_grad()
            # the saturating form: log(1 - D(fake)) is flat where D is sure
            fooled = -binary_cross_entropy_with_logits(discriminator(fake), no)
            fooled.backward()
            generator_optimizer.step()
    return dbg


if __name__ == "__main__":
    print(main().diagnose())
