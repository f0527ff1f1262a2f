"""What docs/frameworks.md takes as there: data, a small net, a loop of one's own."""

import logging
import math
import warnings

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
quiet = {
    "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
    "enable_checkpointing": False,
}  # fmt: skip
_g = torch.Generator().manual_seed(1)
_x = torch.randn(192, 6, generator=_g)
_y = (_x[:, 0] > 0).long() + (_x[:, 1] > 1).long()
arrays = (_x.numpy(), _y.numpy())
loader = DataLoader(TensorDataset(_x, _y), batch_size=8)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


_made: list[Net] = []


def net():
    torch.manual_seed(0)
    _made.append(Net())
    return _made[-1]


def sgd():
    return torch.optim.SGD(_made[-1].parameters(), 0.05)


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


module = Module()


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels):
        return {"loss": F.cross_entropy(self.net(x), labels)}


small_model = WithLoss


def rows(broken):
    x = _x.clone()
    x[:, 2] = torch.where(torch.arange(len(x)) % 12 == broken, math.nan, x[:, 2])
    return [{"x": a, "labels": b} for a, b in zip(x, _y, strict=True)]


def train(model, rate):
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item() if math.isfinite(loss.item()) else 1e9
